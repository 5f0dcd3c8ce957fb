"""What is asked: how to split, train, measure and report; one file per objective."""
