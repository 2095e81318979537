"""`python -m clozemill` is the `clozemill` command."""

from clozemill.cli import main

if __name__ == "__main__":
    main()
