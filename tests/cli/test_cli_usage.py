"""What is typed wrong is said so, with exit status 2 and without a traceback; the rest works."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import polars as pl
import pytest
from commands import PLUGIN, Command

import fedhist as package
from simulations.cli.terminal import GONE


def test_version(fedhist: Command) -> None:
    assert fedhist("--version").out == f"fedhist {package.__version__}\n"


WRONG = {
    "an unknown configuration": (["quikstart"], "did you mean 'quickstart'?"),
    "a missing file": (["absent.toml"], "no such configuration file: absent.toml"),
    "an unknown table": (["quickstart", "--set", "runs.seed=1"], "did you mean 'run'?"),
    "an unknown key of run": (["quickstart", "--set", "run.worker=1"], "did you mean 'workers'?"),
    "an unknown parameter": (
        ["quickstart", "--set", "protocol.epsilom=1"],
        "unknown parameter of bounded-histogram 'epsilom'; did you mean 'epsilon'?",
    ),
    "an unknown population key": (
        ["quickstart", "--population.n_user", "5"],
        "population 'zipf' has no key 'n_user'; did you mean 'n_users'?",
    ),
    "an unknown protocol": (["quickstart", "--set", "protocol.name=meen"], "did you mean 'mean'?"),
    "an unknown adjacency": (
        ["poisson", "--set", "protocol.adjacency=replace-usr"],
        "poisson: protocol.adjacency must be one of add-remove-user, zero-out-user, replace-user, "
        "replace-item, got 'replace-usr'; did you mean 'replace-user'?",
    ),
    "a method that is gone": (
        ["mean", "--protocol.name=sparse-mean", "--epsilon=1", "--protocol.method=auto"]
        + [f"--protocol.{key}=1" for key in ("dimension", "sparsity", "samples_per_user")],
        "'auto'; it is gone: write method = \"vectors\"",
    ),
    "a method that is a protocol now": (
        ["few-users", "--set", "protocol.method=box"],
        "'box'; it is gone: write the protocol \"box-mean\"",
    ),
    "a budget that is none": (
        ["quickstart", "--epsilon", "-1"],
        "quickstart: protocol.epsilon must be positive, got -1.0",
    ),
    "a trust that is no word": (
        ["quickstart", "--set", "protocol.trust=[1]"],
        "protocol.trust must be one of central, aggregate, shuffle, local, got [1]",
    ),
    "a number beyond all": (
        ["quickstart", "--set", f"run.seed={10**400}"],
        "run.seed must be a non-negative integer, or -1 to draw one, got one beyond 2^1000",
    ),
    "a key in quotation marks": (["quickstart", "--set", 'protocol."clipp"=1'], "mean 'clip'?"),
    **{
        f"an unknown word of run.{key}": (
            ["quickstart", "--set", f"run.{key}={word}"],
            f"quickstart: run.{key} must be one of {listed}, got '{word}'; did you mean",
        )
        for key, word, listed in (
            ("noise", "secur", "simulated, secure"),
            ("runtime", "inlin", "inline, ray"),
            ("clients", "agregate", "per-user, aggregate"),
            ("on_bad_reply", "dop", "drop, null, stop"),
            ("aggregation", "masks", "ideal, masked"),
        )
    },
    "an unknown population": (
        ["quickstart", "--set", "population.kind=zip"],
        "did you mean 'zipf'?",
    ),
    "an unknown option": (
        ["quickstart", "--epsilom", "1"],
        "unknown option '--epsilom'; did you mean '--epsilon'?",
    ),
    "no value": (["quickstart", "--protocol.epsilon"], "'--protocol.epsilon' needs a value"),
    "no equals sign": (["quickstart", "--set", "protocol.epsilon"], "reads table.key=value"),
    "text for a number": (["quickstart", "--set", "protocol.epsilon=big"], "got 'big'"),
    "text for a whole number": (["quickstart", "--set", "run.nodes=ten"], "got 'ten'"),
    "a number for yes or no": (["quickstart", "--set", "protocol.nonneg=1"], "true or false"),
    "a value out of range": (["quickstart", "--epsilon", "-1"], "epsilon must be positive"),
    "an unknown runtime": (["quickstart", "--runtime", "slurm"], "one of inline, ray"),
    "parameters that are missing": (
        ["quickstart", "--set", "protocol.name=mean"],
        "mean needs epsilon, high, low, samples_per_user",
    ),
    "a population that is incomplete": (
        ["quickstart", "--set", "population.kind=uniform"],
        "population 'uniform' needs n_users, samples_per_user",
    ),
    "a file that is left to the reader": (["lastfm"], "--set population.path=FILE, or --data FILE"),
    "data that are missing": (
        ["quickstart", "--data", "absent.csv", "--user", "a", "--item", "b"],
        "no such file: absent.csv",
    ),
    "columns without data": (["quickstart", "--item", "b"], "--item describes --data"),
    "a column that is not named": (
        ["quickstart", "--data", "absent.csv", "--user", "a"],
        "population 'events' needs item: give --item COLUMN beside --data",
    ),
    "users elsewhere": (
        [
            "quickstart",
            "--set",
            "population.kind=remote",
            "--set",
            'protocol.domain=["tea", "rye"]',
        ],
        "the population is remote",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage_is_explained(fedhist: Command, case: str, tmp_path: Path) -> None:
    arguments, message = WRONG[case]
    answer = fedhist("run", *arguments)
    assert answer.status == 2
    assert message in answer.err
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    assert answer.out == ""
    assert list(tmp_path.iterdir()) == []


STUDIES = {
    "compare histogram --set compare.epsilon=-1": (
        "histogram: compare.epsilon must be a positive number, got -1"
    ),
    "compare histogram --set compare.delta=nan": (
        "histogram: compare.delta must be a number in [0, 1), got nan"
    ),
    "compare mean --set compare.protocols=[{name='meen'}]": (
        "mean: compare.protocols: unknown protocol 'meen'; did you mean 'mean'?"
    ),
    "compare mean --set compare.protocols=[{name='central-mean',radus=1}]": (
        "mean: unknown parameter of central-mean 'radus'; did you mean 'radius'?"
    ),
    "audit mean --set refine=clip": (
        "unknown parameter of mean 'refine'; it is gone: write method = \"vote\""
    ),
    "compare clip --set sweep.protocols=[{name='meen'}]": (
        "clip: sweep.protocols: unknown protocol 'meen'; did you mean 'mean'?"
    ),
    'compare clip --set sweep."protocol.adjacency"=["replace-usr"]': (
        "clip: bounded-histogram: protocol.adjacency must be one of "
    ),
    "decide shoppers --set decide.without=['item-histgram']": (
        "shoppers: unknown protocol in decide.without 'item-histgram'; did you mean "
    ),
    "reproduce figure1 --set below=-1": "below must be a positive integer, got -1",
    "reproduce figure1 --set points=abc": "points must be a positive integer, got 'abc'",
    "reproduce figure1 --population zipff": (
        "it runs on zipf, sentiment140, snap, lastfm; did you mean 'zipf'?"
    ),
}


@pytest.mark.parametrize("command", STUDIES)
def test_wrong_settings_of_studies_are_explained(fedhist: Command, command: str) -> None:
    answer = fedhist(*command.split())
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    assert STUDIES[command] in answer.err


@pytest.mark.parametrize(
    "command", ["run quickstart", "compare clip", "compare mean", "reproduce all"]
)
def test_a_cluster_and_this_process_exclude_each_other(fedhist: Command, command: str) -> None:
    """Both are named, before anything is looked for or started."""
    place = ["--ray-address", "10.0.0.1:1"]
    answer = fedhist(*command.split(), "--workers", "0", *place)
    assert (answer.status, answer.out) == (2, "")
    assert "--workers 0 runs in this process, --ray-address 10.0.0.1:1 on a cluster" in answer.err


@pytest.mark.parametrize(
    "address", [("--ray-address", "10.0.0.1:1"), ("--set", "run.ray_address=10.0.0.1:1")]
)
def test_a_cluster_and_the_inline_runtime_exclude_each_other(
    address: tuple[str, str], fedhist: Command
) -> None:
    answer = fedhist("run", "quickstart", "--runtime", "inline", *address)
    assert (answer.status, answer.out) == (2, "")
    assert 'run.ray_address 10.0.0.1:1 is a cluster, the runtime "inline" this' in answer.err


def test_an_unknown_command_is_answered_once(fedhist: Command) -> None:
    answer = fedhist("decid")
    assert answer.status == 2
    assert answer.err.count("Did you mean") == 1
    assert "decide" in answer.err


def test_a_table_without_its_choice(fedhist: Command, tmp_path: Path) -> None:
    (tmp_path / "half.toml").write_text('[protocol]\nname = "mean"\n')
    answer = fedhist("run", "half.toml")
    assert answer.status == 2
    assert "needs a table [population] with the key 'kind'" in answer.err
    (tmp_path / "half.toml").write_text("[protocol\n")
    answer = fedhist("run", "half.toml")
    assert answer.status == 2
    assert "is not TOML" in answer.err


def test_a_plugin_that_is_missing_or_registers_nothing(fedhist: Command, tmp_path: Path) -> None:
    answer = fedhist("list", "protocols", "--plugin", "absent.py")
    assert answer.status == 2
    assert "no such plugin file" in answer.err
    (tmp_path / "empty.py").write_text("x = 1\n")
    answer = fedhist("list", "protocols", "--plugin", "empty.py")
    assert answer.status == 2
    assert "registers no protocol" in answer.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--set", "protocol.epsilon=0.25", "--set", "run.seed=5"],
        ["--epsilon", "0.25", "--seed", "5"],
        ["--protocol.epsilon", "0.25", "--run.seed", "5"],
        ["--protocol.epsilon=0.25", "--run.seed=5"],
    ],
    ids=["set", "plain", "dotted", "dotted-equals"],
)
def test_four_ways_to_say_the_same(run: Command, arguments: list[str], tmp_path: Path) -> None:
    """All give the estimate of the file that says it itself."""
    text = (tmp_path / "small.toml").read_text()
    (tmp_path / "other.toml").write_text(
        text.replace("1.0", "0.25").replace("seed = 1", "seed = 5")
    )
    assert run(*arguments, "--out", "a").status == 0
    (tmp_path / "other.toml").replace(tmp_path / "small.toml")
    assert run("--out", "b").status == 0
    assert Path("a/estimate.csv").read_bytes() == Path("b/estimate.csv").read_bytes()


def test_set_wins_over_the_plain_option(run: Command) -> None:
    answer = run("--epsilon", "0.25", "--set", "protocol.epsilon=0.5")
    assert "(0.5, 1e-06)-DP" in answer.out


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


def test_lists_and_descriptions(fedhist: Command) -> None:
    """What can be run, and one protocol whole, fit 80 columns."""
    listed = fedhist("list", "protocols", "--plugin", PLUGIN)
    assert {"bounded-histogram", "mean", "test-ending"} <= set(listed.out.split())
    one = fedhist("list", "protocols", "mean")
    assert "samples_per_user" in one.out
    assert "required" in one.out
    assert "epsilon-LDP" in one.out
    assert "whole record is replaced" in one.out
    assert ">>>" not in one.out
    configs = fedhist("list", "configurations")
    assert {"quickstart", "mean", "lastfm", "movielens"} <= set(configs.out.split())
    for text in (listed.out, one.out, configs.out):
        assert max(map(len, text.splitlines())) <= 80
    answer = fedhist("list", "protocols", "meen")
    assert answer.status == 2
    assert "did you mean 'mean'?" in answer.err


def test_the_file_of_a_built_in_configuration_is_a_start(fedhist: Command) -> None:
    Path("mine.toml").write_text(fedhist("list", "configurations", "quickstart").out)
    arguments = ["--runtime", "inline", "--population.n_users", "100", "--nodes", "2"]
    assert fedhist("run", "mine.toml", *arguments, "--out", "a").status == 0
    assert fedhist("run", "quickstart", *arguments, "--out", "b").status == 0
    assert Path("a/estimate.csv").read_bytes() == Path("b/estimate.csv").read_bytes()
    assert fedhist("list", "configurations", "quikstart").status == 2


@pytest.mark.parametrize("word", ["run", "list", "show", "ledger"])
def test_help_fits_and_says_what_the_arguments_are(fedhist: Command, word: str) -> None:
    answer = fedhist(word, "--help")
    assert answer.status == 0
    assert f"fedhist {word}" in answer.out


@pytest.mark.parametrize("command", ["run", "list", "decide", "audit", "reproduce", "show"])
def test_help_describes_every_argument_in_whole_paragraphs(fedhist: Command, command: str) -> None:
    """No line of a paragraph ends early: its next line's first word had no room."""
    said = fedhist(command, "--help").out
    arguments = said.partition("Arguments")[2].partition("╰")[0]
    assert len(arguments.replace("│", " ").split()) > 6, said
    for paragraph in re.split(r"\n\s*\n", said.partition("╭")[0])[1:]:
        lines = [line.strip() for line in paragraph.strip().split("\n")]
        for line, after in itertools.pairwise(lines):
            assert len(line) + 1 + len(after.split()[0]) > 77, paragraph


@pytest.mark.parametrize("name", GONE)
def test_a_command_that_is_gone_names_the_one_to_use(fedhist: Command, name: str) -> None:
    answer = fedhist(name, "x")
    assert answer.status == 2
    assert GONE[name].split()[-1] in " ".join(answer.err.replace("│", " ").split())


def test_text_reaches_the_configuration_as_it_is(run: Command) -> None:
    """A line break in an option is no line break in TOML."""
    answer = run("--out", 'two\nlines "and" more')
    assert answer.status == 0, answer.err
    assert Path('two\nlines "and" more/estimate.csv').exists()


def test_what_does_not_fit_into_memory_is_said_so(fedhist: Command) -> None:
    size = ["--set", "population.dimension=1000000000000", "--set", "population.n_users=1000"]
    answer = fedhist("compare", "sparse-mean", *size)
    assert answer.status == 1
    assert answer.err.startswith("error: too large for this machine: ")
