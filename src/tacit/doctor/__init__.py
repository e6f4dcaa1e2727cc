"""`tacit doctor`: checks of the machine and of models, each with the fix of what fails."""
