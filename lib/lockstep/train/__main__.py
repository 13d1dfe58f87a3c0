"""`python -m lockstep.train`, and what torchrun runs on every rank."""

from lockstep.train.command import main

if __name__ == "__main__":
    main()
