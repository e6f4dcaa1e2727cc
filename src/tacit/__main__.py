"""`python -m tacit`, where the command itself is not on the path."""

from tacit.cli import main

if __name__ == "__main__":
    main()
