"""Layouts that were published, in Megatron-LM's notation: facts, each with ranks, layers and layers of MTP.

The first is of Llama 3 70B, the others of DeepSeek-V3; the last is of the documentation of megatron-core.
"""

LLAMA3_70B = ("Et*2|(t*2|)*34,t*3|(t*2|)*3,tL", 8, 80, 0)

PUBLISHED = (
    LLAMA3_70B,
    ("Et*4|(tttt|)*14tmL", 16, 61, 1),
    ("Et|(tt|)*30L", 16, 61, 0),
    ("Ett|(tt|)*6mL", 8, 14, 1),
    ("Et*3|(tt|)*29,m|L", 16, 61, 1),
)
