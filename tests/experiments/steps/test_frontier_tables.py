"""The tables, files and lines of a frontier, by hand from a case in which no two units are alike."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from quarter_ms import CHOSEN, FAST, FRONTIER, LATE, MAXIMUM, MIXED, SCHEDULE, TUNED

from experiments.steps.constrained_plan_files import constrained_plan_facts, save_constrained_plans
from experiments.steps.constrained_plans import ConstrainedPlans, PeriodicResult
from experiments.steps.energy_baselines import baselines_to_csv, baselines_to_dict, describe_baselines
from experiments.steps.frontier_files import describe, frontier_to_dict, plan_to_dict
from experiments.steps.savings import describe_savings, savings_csv
