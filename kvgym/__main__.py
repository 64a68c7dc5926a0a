"""Makes ``python -m kvgym`` the same as the command ``kvgym``."""

from kvgym.cli import main

if __name__ == "__main__":
    main()
