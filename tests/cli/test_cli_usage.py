"""What is typed wrong is said so, with exit status 2 and without a traceback; the rest works."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from commands import Command

import fedhist as package
from simulations.cli.terminal import GONE


def test_version(fedhist: Command) -> None:
    assert fedhist("--version").out == f"fedhist {package.__version__}\n"


Q, CLUSTER = "run quickstart", "--ray-address 10.0.0.1:1"
SET = Q + " --set "
WRONG = {
    "run quikstart": "did you mean 'quickstart'?",
    "run absent.toml": "absent.toml",
    SET + "runs.seed=1": "'run'",
    SET + "run.noise=secur": "'secure'",
    SET + "run.nodes=ten": "'ten'",
    SET + f"run.seed={10**400}": "2^1000",
    SET + "protocol.name=meen": "'mean'",
    SET + "protocol.name=mean": "epsilon, high, low, samples_per_user",
    SET + "protocol.epsilom=1": "'epsilon'",
    SET + 'protocol."clipp"=1': "'clip'",
    SET + "protocol.epsilon": "table.key=value",
    SET + "protocol.epsilon=big": "'big'",
    SET + "protocol.nonneg=1": "true or false",
    SET + "population.kind=zip": "'zipf'",
    SET + "population.kind=gaussian": "n_users, samples_per_user",
    SET + 'population.kind=remote --set protocol.domain=["tea"]': "remote",
    Q + " --population.n_user 5": "'n_users'",
    Q + " --epsilon -1": "-1.0",
    Q + " --protocol.epsilon": "'--protocol.epsilon' needs a value",
    Q + " --data absent.csv --user a --item b": "absent.csv",
    Q + " --data absent.csv --user a": "--item COLUMN",
    Q + " --item b": "--item describes --data",
    Q + " --runtime slurm": "inline, ray",
    Q + " --runtime inline " + CLUSTER: "10.0.0.1:1",
    Q + " --workers 0 " + CLUSTER: "--workers 0",
    "run poisson --set protocol.adjacency=replace-usr": "'replace-user'",
    "run few-users --set protocol.method=box": '"box-mean"',
    "run lastfm": "--data FILE",
    "audit mean --set refine=clip": 'method = "vote"',
    "audit mean --set trust=aggregate": "private before they leave",
    "audit mean --seed -1": "seed must be a non-negative integer, got -1",
    "audit mean --inputs absent.json": "no such file of two records: absent.json",
    "run --epsilo": "'--epsilon'",
    "compare": "STUDY",
    "compare trust --seed 3": "'--seeds'",
    "compare trust --seeds x": "'x'",
    "compare histogran": "'histogram'",
    "compare no.toml": "no.toml",
    "compare histogram --set compare.epsilon=-1": "compare.epsilon",
    "compare histogram --set compare.delta=nan": "nan",
    "compare mean --set compare.protocols=[{name='meen'}]": "'mean'",
    "compare mean --set compare.protocols=[{name='central-mean',radus=1}]": "'radius'",
    "compare clip --set sweep.protocols=[{name='meen'}]": "'mean'",
    'compare clip --set sweep."protocol.adjacency"=["replace-usr"]': "adjacency",
    "compare clip --workers 0 " + CLUSTER: "--workers 0",
    "decide shoppers --set decide.without=['item-histgram']": "'item-histogram'",
    "list protocol": "'protocols'",
    "list protocols meen": "'mean'",
    "list populations tabel": "'table'",
    "list protocols --plugin absent.py": "absent.py",
    "show absent": "absent",
    "ledger absent.json": "absent.json",
    "reproduce figur1": "'figure1'",
    "reproduce figure1 --set below=-1": "-1",
    "reproduce figure1 --set belo=3": "'below'",
    "reproduce figure1 --population zipff": "'zipf'",
    "reproduce figure1 --population snap": "snap.stanford.edu/data/loc-gowalla.html",
    "reproduce figure1 --user who": "--user describes --data",
    "reproduce figure1 --seed -3": "-3",
}


@pytest.mark.parametrize("command", WRONG)
def test_wrong_usage_is_explained(fedhist: Command, command: str, tmp_path: Path) -> None:
    """In a line that holds the offending name or number, or the one that was meant."""
    answer = fedhist(*command.split())
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    assert WRONG[command] in answer.err
    assert list(tmp_path.iterdir()) == []


def test_a_list_that_is_no_toml_is_refused_as_such(fedhist: Command) -> None:
    answer = fedhist("run", "quantiles", "--set", "protocol.levels=[.25]")
    assert answer.status == 2
    assert "is no TOML" in answer.err


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("x = 1\n", 2),
        ("def f(:\n", 2),
        ("import sys\nsys.exit(0)\n", 1),
        ("raise GeneratorExit\n", 1),
    ],
)
def test_a_plugin_that_registers_nothing_or_ends_python(
    fedhist: Command, tmp_path: Path, text: str, status: int
) -> None:
    (tmp_path / "plugin.py").write_text(text)
    answer = fedhist("list", "protocols", "--plugin", "plugin.py")
    assert answer.status == status
    assert "plugin.py" in answer.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--set", "protocol.epsilon=0.25", "--set", "run.seed=5"],
        ["--epsilon", "0.25", "--seed", "5"],
        ["--protocol.epsilon", "0.25", "--run.seed", "5"],
        ["--epsilon", "1", "--set", "protocol.epsilon=0.25", "--seed", "5"],
        ["--protocol.epsilon=0.25", "--run.seed=5"],
    ],
    ids=["set", "plain", "dotted", "set-wins", "dotted-equals"],
)
def test_all_ways_to_say_the_same(run: Command, arguments: list[str], tmp_path: Path) -> None:
    text = (tmp_path / "small.toml").read_text()
    (tmp_path / "other.toml").write_text(
        text.replace("1.0", "0.25").replace("seed = 1", "seed = 5")
    )
    assert run(*arguments, "--out", "a").status == 0
    (tmp_path / "other.toml").replace(tmp_path / "small.toml")
    assert run("--out", "b").status == 0
    assert Path("a/estimate.csv").read_bytes() == Path("b/estimate.csv").read_bytes()


def test_your_own_events(run: Command, tmp_path: Path) -> None:
    """--data replaces the population; columns are named or numbered; the domain is reported."""
    rows = [(f"u{i}", f"item {i % 4}", 1 + i % 3) for i in range(40)]
    frame = pl.DataFrame(rows, schema=["who", "what", "times"], orient="row")
    frame.write_csv("mine.csv")
    named = run("--data", "mine.csv", "--user", "who", "--item", "what", "--count", "times")
    assert named.status == 2
    assert "needs a public domain" in named.err
    assert "--top" in named.err
    columns = ["--user", "who", "--item", "what", "--count", "times", "--top", "3"]
    named = run("--data", "mine.csv", *columns, "--out", "a")
    assert named.status == 0, named.err
    assert "NOT PRIVATE" in named.out
    assert "the domain is the 3 most frequent items" in named.out
    numbers = ["--user", "0", "--item", "1", "--count", "2", "--top", "3"]
    assert run("--data", "mine.csv", *numbers, "--out", "b").status == 0
    assert Path("a/estimate.csv").read_bytes() == Path("b/estimate.csv").read_bytes()
    Path("public.txt").write_text("item 0\nitem 9\n")
    public = run(
        *["--data", "mine.csv", *columns[:-2], "--population.domain", "public.txt", "--out", "c"]
    )
    assert public.status == 0, public.err
    assert "the domain is" not in public.out
    assert pl.read_csv("c/estimate.csv")["key"].to_list() == ["item 0", "item 9"]


def test_your_own_samples(fedhist: Command) -> None:
    rows = [(f"u{i // 5}", 3.0 + (i % 5) / 4) for i in range(500 * 5)]
    pl.DataFrame(rows, schema=["who", "stars"], orient="row").write_parquet("mine.parquet")
    answer = fedhist(
        *["run", "mean", "--data", "mine.parquet", "--user", "who", "--value", "stars"],
        *["--protocol.low", "1", "--protocol.high", "5", "--epsilon", "4", "--runtime", "inline"],
        *["--out", "out"],
    )
    assert answer.status == 0, answer.err
    assert abs(pl.read_csv("out/estimate.csv")["estimate"][0] - 3.5) < 0.2  # seed 1 is fixed


def test_the_file_of_a_built_in_configuration_is_a_start(fedhist: Command) -> None:
    Path("mine.toml").write_text(fedhist("list", "configurations", "quickstart").out)
    arguments = ["--runtime", "inline", "--population.n_users", "100", "--nodes", "2"]
    assert fedhist("run", "mine.toml", *arguments, "--out", "a").status == 0
    assert fedhist("run", "quickstart", *arguments, "--out", "b").status == 0
    assert Path("a/estimate.csv").read_bytes() == Path("b/estimate.csv").read_bytes()


@pytest.mark.parametrize("name", GONE)
def test_a_command_that_is_gone_names_the_one_to_use(fedhist: Command, name: str) -> None:
    answer = fedhist(name, "x")
    assert answer.status == 2
    assert GONE[name].split()[-1] in " ".join(answer.err.replace("│", " ").split())


def test_what_does_not_fit_into_memory_is_said_so(fedhist: Command) -> None:
    size = ["--set", "population.dimension=1000000000000", "--set", "population.n_users=1000"]
    answer = fedhist("compare", "sparse-mean", *size)
    assert answer.status == 1
    assert answer.err.startswith("error: too large for this machine: ")
