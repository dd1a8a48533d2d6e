"""``python -m experiments.profile_rates`` is ``schedsearch profile_rates``."""

from experiments.config.command import run

if __name__ == "__main__":
    run("profile_rates")
