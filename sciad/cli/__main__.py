"""`python -m sciad.cli` is the command `sciad`."""

from sciad.cli._main import main

if __name__ == "__main__":
    main()
