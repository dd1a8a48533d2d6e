"""The command ``schedsearch``, also ``python -m schedsearch``: hands over to the commands of `experiments`.

Here and in `schedsearch.Pipeline` this layer knows later ones: it bears the name of all four.
"""

from schedsearch import put_first


def main() -> None:
    """Run the command that the command line names."""
    put_first()
    from experiments.__main__ import main as run_command

    run_command()


if __name__ == "__main__":
    main()
