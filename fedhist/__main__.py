"""The command line: ``fedhist`` and ``python -m fedhist``, also beside a file simulations.py."""


def main() -> None:
    """Run the command that the arguments name."""
    from simulations.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
