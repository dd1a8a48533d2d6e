import math
from pathlib import Path

import pytest
from cluster.small_clusters import GAVEL, needs_gavel
from one_line_errors import raises_line

from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.inputs.throughput_file import read_throughputs
from schedsearch.cluster.inputs.trace_file import read_trace
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.throughputs import JobOperatingPoint, Throughputs

TRACES = [
    ("msr/seed0_2869ce", 354, 179),
    ("physical/artifact_evaluation", 15, 0),
    ("physical/minimize_makespan", 100, 0),
]

THROUGHPUTS = Throughputs(
    {
        ("A", 1): {
            "k80": (JobOperatingPoint(2.0),),
            "v100": (JobOperatingPoint(10.0), JobOperatingPoint(8.0)),
        },
        ("A", 2): {"v100": (JobOperatingPoint(16.0),)},
        ("B", 1): {"v100": (JobOperatingPoint(0.0),), "k80": (JobOperatingPoint(3.0),)},
        ("C", 4): {"v100": (JobOperatingPoint(0.0),)},
    }
)

PHYSICAL = "A\tcd\twd\t-n\t1\t500\t1\t2.0\t1.5\t30\n"
MSR = "A\tcd\t-n\t1\t500\t30.0\t2\n"
OURS = "job_type,steps,scale_factor,arrival_s\n"


def read(tmp_path: Path, text: str, **options: object) -> tuple[Job, ...]:
    (tmp_path / "t.trace").write_text(text)
    return read_trace(tmp_path / "t.trace", THROUGHPUTS, **options).jobs  # type: ignore[arg-type]


@needs_gavel
@pytest.mark.parametrize(("name", "num_jobs", "num_skipped"), TRACES)
def test_gavels_traces(name: str, num_jobs: int, num_skipped: int) -> None:
    path = GAVEL / "traces" / f"{name}.trace"
    throughputs = read_throughputs(GAVEL / "simulation_throughputs.json")
    trace = read_trace(path, throughputs)
    assert (len(trace.jobs), sum(trace.skipped.values())) == (num_jobs, num_skipped)
    assert len(trace.jobs) + sum(trace.skipped.values()) == len(path.read_text().splitlines())
    assert not any(kind in throughputs.alone for kind in trace.skipped)
    if num_skipped:
        assert trace.skipped_text().startswith(f"{num_skipped} jobs have no throughput and are skipped: ")


def test_gavels_forms(tmp_path: Path) -> None:
    """An SLO is a multiple of the duration where the job is fastest: 500 steps at 10 steps/s, 1.5 times."""
    late, early = read(tmp_path, PHYSICAL + PHYSICAL.replace("30", "10").replace("1.5", "-1.000000"))[::-1]
    assert late == Job("0", "A", 500, 1, 2.0, 30, 75.0)
    assert early == Job("1", "A", 500, 1, 2.0, 10, math.inf)
    assert read(tmp_path, MSR.replace("\n", "\r\n")) == (Job("0", "A", 500, 2, 1.0, 30.0),)


def test_what_has_no_throughput_is_counted(tmp_path: Path) -> None:
    (tmp_path / "t.trace").write_text(MSR + MSR.replace("2\n", "4\n") * 2 + MSR.replace("A", "C"))
    trace = read_trace(tmp_path / "t.trace", THROUGHPUTS)
    assert len(trace.jobs) == 1 and trace.skipped == {("A", 4): 2, ("C", 2): 1}
    assert (
        trace.skipped_text()
        == "3 jobs have no throughput and are skipped: 2 of A on 4 GPUs, 1 of C on 2 GPUs"
    )


def test_our_own_columns(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "name,job_type,steps,scale_factor,weight,arrival_s,slo_s,entity\n"
        "x,A,0.3,1,2.5,0.0,4,team\n"
        "y,B,7e9,1,1.0,0.5,,\n"
    )
    jobs = (Job("x", "A", 0.3, 1, 2.5, 0.0, 4.0, "team"), Job("y", "B", 7e9, 1, arrival_s=0.5))
    assert read_trace(tmp_path / "t.csv", THROUGHPUTS).jobs == jobs


def test_philly_as_csv(tmp_path: Path) -> None:
    """Arrivals count from the first; the duration is at the fastest type's rate; no attempt is no job."""
    text = (
        "status,vc,jobid,submitted_time,num_gpus,run_time,job_type\n"
        "Pass,ee9,app_1,2017-10-07 01:11:39,2,100,A\n"
        "Killed,ee9,app_2,2017-10-07 01:10:39,1,50,B\n"
        "Failed,ee9,app_3,2017-10-07 01:10:40,1,None,B\n"
    )
    (tmp_path / "t.csv").write_text(text)
    trace = read_trace(tmp_path / "t.csv", THROUGHPUTS)
    first, second = trace.jobs
    assert first == Job("app_2", "B", 150.0, 1, arrival_s=0.0, entity="ee9")
    assert second == Job("app_1", "A", 1600.0, 2, arrival_s=60.0, entity="ee9")
    assert trace.not_run == 1 and "1 rows used no GPU" in trace.skipped_text()


@pytest.mark.parametrize(
    "times",
    [
        ("2020-04-01", "2020-04-02T00:00:00Z"),
        ("2020-04-01 00:00:00.000", "2020-04-02T02:00:00+02:00"),
        ("1585699200", "1585785600.0"),
    ],
)
def test_times_are_dates_or_seconds(tmp_path: Path, times: tuple[str, str]) -> None:
    rows = "".join(f"a{i},{time},1,3600\n" for i, time in enumerate(times))
    jobs = read(tmp_path, f"job_id,submit_time,gpu_num,duration\n{rows}")
    assert [job.arrival_s for job in jobs] == [0.0, 86400.0]


def test_types_are_drawn_by_the_seed(tmp_path: Path) -> None:
    """Only types that run on as many GPUs are drawn; a row's type does not depend on later rows."""
    text = "job_name,submit_time,num_gpu,duration\n" + "".join(f"j{n},{n},1,60\n" for n in range(40))
    types = [job.type for job in read(tmp_path, text, seed=3)]
    assert {*types} == {"A", "B"}
    assert types == [job.type for job in read(tmp_path, text, seed=3)]
    assert types != [job.type for job in read(tmp_path, text, seed=4)]
    assert types[:20] == [job.type for job in read(tmp_path, "\n".join(text.splitlines()[:21]), seed=3)]
    (tmp_path / "t.csv").write_text("job_name,submit_time,num_gpu,duration\na,0,0.5,60\nb,0,3,60\nc,0,0,60\n")
    trace = read_trace(tmp_path / "t.csv", THROUGHPUTS)
    assert [job.scale_factor for job in trace.jobs] == [1]
    assert trace.skipped == {("", 3): 1} and trace.not_run == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            PHYSICAL + "A\tcd\twd\n",
            "line 2: has 3 tab-separated columns; a physical trace of Gavel has 10, one",
        ),
        (
            MSR.replace("A", "AA"),
            "line 1: the throughputs have no type of job 'AA'; add it to them, or write 'A'",
        ),
        (
            MSR.replace("30.0", "-30"),
            "line 1, column arrival_s: '-30' is not an arrival in seconds; give 0 or more",
        ),
        (PHYSICAL.replace("2.0", ""), None),
        (f"name,{OURS}a,A,5,1,0\na,A,5,1,0\n", "line 3: the name 'a' is given twice; rename one of the jobs"),
        (
            "num_gpus,run_time\n1,5\n",
            "line 1: has no column of arrival; add one of arrival_s, submitted_time",
        ),
        (
            "submit_time,num_gpus,run_time\nsoon,1,5\n",
            "line 2, column submit_time: 'soon' is not a date as 2017-10-07 01:11:39, or seconds; write",
        ),
        ("submit_time,num_gpus,run_time\n5,1,5\n,1,5\n", "line 3: lacks the arrival; give it, or remove the"),
        (f"slo_s,{OURS}0,A,5,1,0\n", "line 2, column slo_s: '0' is not a time after the arrival in seconds"),
        (
            "submit_time,num_gpu,duration\n2020-04-01,1,5\n5,1,5\n",
            "line 3, column submit_time: '5' is not a date as others of the column are; write all as",
        ),
        (
            "submit_time,num_gpu,duration\n0,1,5\n1585699200000,1,5\n",
            "line 3, column submit_time: '1585699200000' is not in the unit of others of the column",
        ),
        (
            f"{OURS}A,5,1,2020-04-01\n",
            "line 2, column arrival_s: '2020-04-01' is not an arrival in seconds; give 0 or more, or name",
        ),
        ("submit_time,run_time\n1,5\n", "line 1: has no column of GPUs; add one of scale_factor, num_gpus,"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, message: str | None) -> None:
    if message is None:
        assert read(tmp_path, text)[0].weight == 1.0
    else:
        with raises_line(ClusterError, f"{tmp_path / 't.trace'}: {message}"):
            read(tmp_path, text)


def test_more_gpus_than_there_are(tmp_path: Path) -> None:
    few = GpuCluster({"v100": 1, "k80": 8})
    message = "line 1: A on 2 GPUs does not run on any type of which the cluster has enough"
    remedy = "(1 v100, 8 k80); give it more GPUs, or remove the job"
    with raises_line(ClusterError, f"{tmp_path / 't.trace'}: {message}", has=remedy):
        read(tmp_path, MSR, cluster=few)
    assert read(tmp_path, MSR, cluster=GpuCluster({"v100": 2}))
