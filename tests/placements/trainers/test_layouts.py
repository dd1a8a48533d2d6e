"""Layouts in the notations of frameworks: read back equal, and refused with the frameworks' own messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_line_errors import raises_line
from published_layouts import PUBLISHED

from placements.forms.reading import Field
from placements.trainers.files import layout_files, read_any, read_bounds, write_bounds
from placements.trainers.layers import read_layers
from placements.trainers.layout import LayoutError, PipelineLayout
from placements.trainers.megatron_layout import (
    arguments_of,
    check_megatron,
    pipeline_of,
    read_notation,
    write_notation,
)
from placements.trainers.torchtitan import read_parts, write_parts


@st.composite
def layouts(
    draw: st.DrawFn, with_mtp: bool = True, max_chunks: int = 4, empty: bool = True
) -> PipelineLayout:
    """Layouts that Megatron-LM accepts."""
    num_devices, num_chunks = draw(st.integers(1, 6)), draw(st.integers(1, max_chunks))
    num_stages = num_devices * num_chunks
    sizes = draw(st.lists(st.integers(0 if empty else 1, 4), min_size=num_stages, max_size=num_stages))
    stages = ["t" * size for size in sizes]
    stages[0] = "E" + stages[0]
    if with_mtp and draw(st.booleans()):
        last_layer = max(i for i, stage in enumerate(stages) if "t" in stage or i == 0)
        at = draw(st.integers(max(last_layer, num_stages - num_devices), num_stages - 1))
        stages[at] += "m" * draw(st.integers(1, 2))
    stages[-1] += "L"
    return PipelineLayout(num_devices, tuple(stages))


@given(layouts())
def test_megatrons_notation_is_read_back(layout: PipelineLayout) -> None:
    text = write_notation(layout)
    assert read_notation(text, layout.num_devices) == layout
    assert len(text) <= len("|".join(layout.stages))
    assert check_megatron(layout, layout.num_layers, layout.num_mtp or None) == layout
    if layout.num_layers:
        words = [str(word) for pair in arguments_of(layout, 7).items() for word in pair]
        pipeline = pipeline_of(words)
        assert pipeline.layout == layout
        assert pipeline.group == (7 if layout.num_chunks > 1 and layout.num_devices != 7 else None)


@given(layouts(with_mtp=False, empty=False))
def test_torchtitans_lists_are_read_back(layout: PipelineLayout) -> None:
    assert read_parts(write_parts(layout), layout.num_devices) == layout


@given(layouts(max_chunks=1))
def test_deepspeeds_bounds_are_read_back(layout: PipelineLayout) -> None:
    texts, _ = layout_files(layout, layout.num_devices)
    assert read_bounds(Field(json.loads(texts["deepspeed.json"]), "", LayoutError)) == layout


@pytest.mark.parametrize(("text", "num_devices", "num_layers", "num_mtp"), PUBLISHED)
def test_published_layouts_are_accepted(text: str, num_devices: int, num_layers: int, num_mtp: int) -> None:
    layout = read_notation(text, num_devices)
    assert check_megatron(layout, num_layers, num_mtp or None) == layout
    assert read_notation(write_notation(layout), num_devices) == layout


def test_a_notation_is_compact() -> None:
    assert write_notation(read_notation("Et*2|(t*2|)*34,t*3|(t*2|)*3,tL", 8)) == "Ett|(tt|)*34,t*3|(tt|)*3,tL"
    assert write_notation(read_notation("Et|" + "tt|t|" * 9 + "L", 4)) == "Et|(tt|t|)*9,L"
    assert write_notation(read_notation("E||||L", 5)) == "E||||L"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Et|tx|L", "Invalid layer character: x (stage='tx')"),
        ("Et|t\nt|L", "Invalid layer character: '\\n' (stage='t\\nt')"),
        ("Et|tt|L", "must be divisible by pipeline_model_parallel_size (len(layout)=3, "),
        ("tE|tL", "The first layer must be embedding, but got LayerType.decoder"),
        ("|", "The first layer must be embedding, but got nothing"),
        ("Ett|ttLt", "The last layer must be loss, but got LayerType.decoder"),
        ("Ett|tL", "Number of decoder layers 3must match num_layers 4"),
        ("Emm|ttttL", "decoder layers must be placed before MTP layers"),
        ("Ett|ttmm||L", "always in the last "),
        ("Ettttm|mL", "All of the MTP layers must be in the same one virtual pipeline stage"),
    ],
)
def test_what_megatron_refuses_is_refused_in_its_words(text: str, message: str) -> None:
    with pytest.raises(LayoutError) as error:
        check_megatron(read_notation(text, 2), 4, 2)
    assert str(error.value).startswith("layout: Megatron-LM: ")
    assert message in str(error.value)
    assert "; " in str(error.value)
    assert "\n" not in str(error.value)


def test_a_number_that_is_too_large_is_refused_at_once() -> None:
    with pytest.raises(LayoutError, match="^layout: has more than 100000 parts; check the numbers"):
        read_notation("E(t*99999|)*99999,L", 2)
    with pytest.raises(LayoutError, match="has more than 100000 parts"):
        read_notation("Et*99999999999999|L", 2)


SHORT = {
    "-n": "--num-layers",
    "-p": "--pipeline-model-parallel-size",
    "-c": "--num-virtual-stages-per-pipeline-rank",
    "-l": "--num-layers-per-virtual-pipeline-stage",
    "-first": "--decoder-first-pipeline-num-layers",
    "-last": "--decoder-last-pipeline-num-layers",
    "-e": "--account-for-embedding-in-pipeline-split",
    "-s": "--account-for-loss-in-pipeline-split",
    "-m": "--mtp-num-layers",
    "-layout": "--pipeline-model-parallel-layout",
}


def stages_of(words: str) -> tuple[str, ...]:
    """The stages that arguments say by short names."""
    return pipeline_of([SHORT.get(word, word) for word in words.split()]).layout.stages


@pytest.mark.parametrize(
    ("words", "stages"),
    [
        ("-n 6 -p 3", ("Ett", "tt", "ttL")),
        ("-n 8 -p 2 -c 2", ("Ett", "tt", "tt", "ttL")),
        ("-n 8 -p 2 -l 2", ("Ett", "tt", "tt", "ttL")),
        ("-n 5 -p 3 -first 1 -last 2", ("Et", "tt", "ttL")),
        ("-n 4 -p 3 -e -s -m 1", ("Et", "tt", "tmL")),
        ("-n 2", ("EttL",)),
    ],
)
def test_arguments_without_a_layout(words: str, stages: tuple[str, ...]) -> None:
    assert stages_of(words) == stages


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-p 2", "^--num-layers: is missing; give"),
        ("-n 5 -p 2", "^--num-layers: Megatron-LM: 5 layers are not div"),
        (
            "-n 6 -p 2 -c 2",
            "^--num-virtual-stages-per-pipeline-rank: .*num_layers_per_pipeline_rank 3 should",
        ),
        ("-n 2 -layout EttL -first 1", "with other pipeline layout arguments; leave out --decoder-first-"),
        ("-n 3 -p 2 -first 1 -s", "cannot be set at the same time with --account-for-embedding-in-"),
    ],
)
def test_arguments_that_are_refused(words: str, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        stages_of(words)


RANKS = "--pipeline-model-parallel-size"
PLAIN = f"--num-layers 4 {RANKS} 2"
RUN = f"torchrun pretrain_gpt.py {PLAIN}"
TRAIN = f"torchrun pretrain_gpt.py --num-layers 4 {RANKS}"
END = f"x.py --num-layers $L {RANKS}"
TITAN = "./run_train.sh --parallelism.pipeline-parallel-degree"


@pytest.mark.parametrize(
    "script",
    [
        f"\ufeff# a comment\r\n{PLAIN}",
        f'G=$(nvidia-smi | wc -l); {RUN} --seed $1 $MORE "$@" 2>&1 | tee > log || exit 1; sync',
        f"A='{PLAIN}'\nsource ~/venv/bin/activate && torchrun --x 1 pretrain_gpt.py \\\n $A &",
        f'A=({PLAIN} # a comment\n)\nA+=(--bf16)\npython x.py "${{A[@]}}" --bf16',
        f"export P=2\nA=3 B=4\nQ=$P\nreadonly L=4\nx.py --num-layers=$L {RANKS} ${{PP:-$Q}}",
        f"A=\"--num-layers 4 --pipeline-model-parallel-layout 'Et*2|ttL'\"\nB='{RANKS} 2'\n"
        'CMD="torchrun x.py ${A} $B"\necho $CMD\neval "$CMD"',
        f'#!/bin/bash\nA="{PLAIN}"\nif [ $BIG = 1 ]; then A="$A --bf16"; fi\nsrun -l bash -c "x.py $A"',
        'export P="${P:-2}"\nL=${L:-${M:-4}} # is it not\nif (( P % 2 != 0 )); then echo "it\'s odd"; fi\n'
        f"{END} $P",
        f'cat <<EOT > config\n{{ "size": $SIZE }}\nEOT\nC=""\nif [ $A ]; then C="$C --bf16"; fi\n'
        f'C="${{C}} cd $D && {RUN} ${{V:+--vp "$V"}}"\nbash -c "$C" "" "${{A[@]}}"',
        f"L=4\n(M=8)\n{END} 2 `# ranks` \\\n --${{X:0:1}} ${{X^^}}",
        f"train() {{\n{RUN} $1; }}",
        f"{TITAN}=2 --parallelism.module-fqns_per_model_part=tok_embeddings,layers.0,layers.1 "
        "layers.2,layers.3,norm,lm_head $EXTRA 2>&1 | tee log",
    ],
)
def test_a_script_is_read_as_the_shell_reads_it(script: str, tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(script, newline="")
    assert read_any(str(path)).layout.stages == ("Ett", "ttL")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (RUN.replace("s 4", "s\xa04"), "--num-layers: is missing; give the number"),
        ("--num-layers '4", "is no command line (No closing quotation); close the quotes"),
        ("\nx.py --num-layers $LAYERS", "--num-layers: $LAYERS is not known before a run; write the value"),
        (f"{RUN}\n{RUN} --num-layers 8", "--num-layers: is there with 4 and 8; give a script with one of"),
        (
            f"{RUN}\nif [ $A ]; then\n{RUN}; fi",
            "--num-layers: is under a condition or in a loop; write",
        ),
        (f'A="{PLAIN}"\nif [ $A ]; then A="$A {RANKS} 4"; fi', f"{RANKS}: is under a condition or in a"),
        (f"x.py {RANKS} 2 $A", "--num-layers: is missing; give the number"),
        (f"{RUN} --decoder_last_pipeline_num_layers 3", "is unknown to Megatron-LM; write --decoder-"),
        (f"P=1\nif [ $A ]; then P=2; fi\n{TITAN} $P", "pipeline_parallel_degree: $P is not known before"),
        (f'[ -z "$P" ] && P=2\n{TRAIN} $P', f"{RANKS}: $P is not known before"),
        (f"case $M in 7b) L=4;; (*) L=9;; esac\n{END} 2", "--num-layers: $L is not known before"),
        (
            f"for i in 1 2; do\n{TRAIN} ${{P:-1}}\nP=2; done",
            "--num-layers: is under a condition or in a loop",
        ),
        (f"P=2\nP=4\n{TRAIN} $P", f"{RANKS}: $P is not known before a run"),
        (f"P=2\n(( P++ ))\n{TRAIN} $P", f"{RANKS}: $P is not known before a run"),
        (f"P=8\n(( P = P / 4 ))\n{TRAIN} $P", f"{RANKS}: $P is not known before a run"),
        (f"P=8\n(( P = P / 4 ))\n{TRAIN} ${{P:-2}}", f"{RANKS}: ${{P:-2}} is not known before a run"),
        (f"P=2\n{TRAIN} $((P * 2))", f"{RANKS}: $(...) is not known before a run"),
        (f"P=4.x\n{TRAIN} ${{P%.*}}", f"{RANKS}: ${{P%.*}} is not known before a run"),
        (f"while read -r P; do sync; done\n{TRAIN} ${{P:-2}}", f"{RANKS}: $P is not known before a run"),
        (f"\n. env.sh\n{RUN}", ". env.sh: is not followed; write its commands out"),
    ],
)
def test_what_a_script_does_not_tell_is_named(script: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(script)
    with raises_line(LayoutError, f"{tmp_path / 'train.sh'}: ", has=message):
        read_any(str(tmp_path / "train.sh"))
    for bounds in ([0], [1, 4], [0, 3, 2, 4], [0, 3]):
        data = {"num_stages": len(bounds) - 1, "parts": bounds, "layers": "EttL"}
        (tmp_path / "a.json").write_text(json.dumps(data))
        with raises_line(LayoutError, f"{tmp_path / 'a.json'}: parts: ", has="is not 0 to 4 without a step "):
            read_any(tmp_path / "a.json")
    with pytest.raises(LayoutError, match=r"none.txt: cannot be read; give a text file of Megatron-LM"):
        read_any(str(tmp_path / "none.txt"))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([["tok_embeddings", "layers.0"], ["norm", "output"]], "output stands where lm_head should"),
        ([["tok_embeddings", "layers.1"], ["layers.0", "norm", "lm_head"]], "layers.1 stands where layers.0"),
        (
            [["layers.0"], ["tok_embeddings", "norm", "lm_head"]],
            "layers.0 stands where tok_embeddings should",
        ),
        ([["tok_embeddings", "layers.0", "norm"], ["lm_head"]], "norm has to stand with lm_head"),
    ],
)
def test_lists_of_modules_that_are_refused(parts: list[list[str]], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        read_parts(parts, 2)


def test_what_a_framework_cannot_say_is_refused() -> None:
    with pytest.raises(LayoutError, match="torchtitan: MTP does not support pipeline parallelism yet; "):
        write_parts(PipelineLayout(2, ("Et", "tmL")))
    with pytest.raises(LayoutError, match="stage 1 is empty"):
        write_parts(PipelineLayout(3, ("Et", "", "tL")))
    with pytest.raises(LayoutError, match="DeepSpeed: has one stage on each rank, and the layout 2"):
        write_bounds(PipelineLayout(1, ("Et", "tL")))


HEAD = "layer,kind,forward_ms,backward_ms,activation_mib,weight_mib\n"
GOOD = ("e,embedding,0.1,0.2,1,2GiB", "t0,layer,1,2,10,100", "l,loss,0.5,1,3,200")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (GOOD[1:], "kind: the rows are not an embedding, then layers, perhaps mtp, and then a loss;"),
        ((GOOD[1], GOOD[0], GOOD[2]), "kind: the rows are not an embedding, then layers,"),
        ((*GOOD[:2], *GOOD[1:]), "row 3, layer: 't0' is there twice; give each a name of its own"),
        ((GOOD[0], "t0,layer,0,2,10,100", GOOD[2]), "line 3, column forward_ms: '0' is not a number above 0"),
        ((GOOD[0], "t0,block,1,2,1,100", GOOD[2]), "line 3, column kind: 'block' is not"),
    ],
)
def test_files_of_layers_that_are_refused(rows: tuple[str, ...], message: str, tmp_path: Path) -> None:
    path = tmp_path / "layers.csv"
    path.write_text(HEAD + "\n".join(rows))
    with raises_line(LayoutError, f"{path}: {message}"):
        read_layers(path)
