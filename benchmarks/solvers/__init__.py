"""What is compared: each file trains one method for the objectives that it lists."""
