"""A machine with made-up rates, and the same as files."""

from __future__ import annotations

from typing import Any

from placements.models.machine.machine_rates import CollectiveRate, KernelRate, MachineRates, ShareTable

MACHINE = MachineRates(
    "made up",
    1.0,
    {
        ("product", "forward"): ShareTable({(500, 1000, 2000): 0.5}, 0.8),
        ("product", "input_gradient"): ShareTable({(500, 1000, 2000): 0.25}, 0.8),
        ("product", "weight_gradient"): ShareTable({(500, 1000, 2000): 0.2}, 0.4),
        ("experts", "forward"): ShareTable({(4, 100, 100, 200): 0.3}, 0.5),
        ("experts", "input_gradient"): ShareTable({(4, 100, 100, 200): 0.1}, 0.5),
        ("experts", "weight_gradient"): ShareTable({(4, 100, 100, 200): 0.6}, 0.5),
        ("core", "forward"): ShareTable({(100, 2, 8): 0.9}, 0.5),
        ("core", "backward"): ShareTable({(100, 2, 8): 0.7}, 0.25),
    },
    {
        "stream": KernelRate(1000.0, 0.5, 30.0),
        "permute": KernelRate(1000.0, 0.25, 40.0),
        "loss": KernelRate(1000.0, 0.75, 10.0),
    },
    {
        "all_reduce": CollectiveRate(100.0, 0.5, 2.0, 10.0, 5.0),
        "all_gather": CollectiveRate(100.0, 0.8, 1.0, 10.0),
        "reduce_scatter": CollectiveRate(100.0, 0.4, 1.0, 20.0),
        "all_to_all": CollectiveRate(100.0, 0.5, 1.0, 3.0),
        "send": CollectiveRate(100.0, 0.25, 1.0, 4.0),
    },
)
"""With a peak of 1 TFLOP/s."""

_RATE = {"gbps": 1000, "efficient_factor": 0.5, "latency_us": 30}


def machine_json() -> dict[str, Any]:
    """Return the same in SimuMax's form, without some of its collectives' figures."""
    products = {
        "b=1, m=500, k=1000, n=2000, layout=TN, accumulate=False, out_dtype=bf16": 0.5,
        "b=1, m=500, k=2000, n=1000, layout=NN, accumulate=False, out_dtype=bf16": 0.25,
        "b=1, m=2000, k=500, n=1000, layout=NT, accumulate=True, out_dtype=fp32": 0.2,
        "b=1, m=2000, k=500, n=1000, layout=NT, accumulate=False, out_dtype=bf16": 0.6,
    }
    experts = {
        "ng=4, M=100, N=200, K=100, dtype=bf16, stage=fwd": 0.3,
        "ng=4, M=100, N=200, K=100, dtype=bf16, stage=bwd_grad_act": 0.1,
        "ng=4, M=100, N=200, K=100, dtype=bf16, main_grad_dtype=bf16, stage=bwd_grad_w": 0.2,
        "ng=4, M=100, N=200, K=100, dtype=bf16, main_grad_dtype=fp32, stage=bwd_grad_w": 0.6,
    }
    core = "batch=1, seq_len=100, head_num=2, kv_head_num=1, qk_head_dim=8, qkv_contiguous="
    collective = {"scale": 1, "efficient_factor": 0.8, "latency_us": 10}
    return {
        "sys_name": "made up",
        "num_per_node": 4,
        "accelerator": {
            "op": {
                "matmul": {"tflops": 1, "efficient_factor": 0.8, "accurate_efficient_factor": products},
                "group_matmul": {"efficient_factor": 0.5, "accurate_efficient_factor": experts},
                "sdp_fwd": {
                    "efficient_factor": 0.5,
                    "accurate_efficient_factor": {f"{core}True": 0.9, f"{core}False": 0.1},
                },
                "sdp_bwd": {"efficient_factor": 0.25, "accurate_efficient_factor": {f"{core}False": 1.4}},
            },
            "bandwidth": {
                "default": dict(_RATE),
                "permute_fwd": _RATE | {"efficient_factor": 0.25},
                "ce_fusion": _RATE | {"latency_us": 10},
            },
        },
        "networks": {
            "high_intra_node": {
                "bandwidth": {"gbps": 100},
                "op": {
                    "all_reduce": collective | {"scale": 2, "fixed_latency_us": 5},
                    "all_gather": collective | {"fixed_latency_us_by_comm_num": {"8": 9}},
                    **{name: dict(collective) for name in ("reduce_scatter", "all2all", "p2p")},
                },
            }
        },
    }


MACHINE_CSV = """operator,pass,sizes,share,latency_us
product,forward,500 1000 2000,0.5,
product,forward,500 1000 1000,0.7,
product,input_gradient,500 1000 2000,0.25,
product,weight_gradient,500 1000 2000,0.2,
experts,forward,4 100 100 200,0.3,
core,backward,100 2 1 8,1.4,
kernel,stream,,0.5,30
kernel,loss,,0.75,10
collective,all_reduce,,0.5,10
"""
