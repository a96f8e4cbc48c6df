"""Run the command line as `python -m orthonorm`."""

from orthonorm.cli import main

__all__ = ()

if __name__ == "__main__":
    main()
