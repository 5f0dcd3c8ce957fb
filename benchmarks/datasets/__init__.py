"""What is learnt from: each file has `load()`, which gives a Bunch as `load_dataset` does."""
