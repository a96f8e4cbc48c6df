"""Run the command line as `python -m orthonorm`."""

from orthonorm.cli import main

if __name__ == "__main__":
    main()
