#!/usr/bin/env python3
"""A log of coding agents on stdout: sessions whose history grows by tool results. Few calls with long results make most of it new."""
import argparse
import json
import random

args = argparse.ArgumentParser(description=__doc__)
args.add_argument("megabytes", type=float)
args.add_argument("--seed", type=int, default=1)
args.add_argument("--calls", type=int, default=40, help="of a session")
args.add_argument("--lines", type=int, default=120, help="of a tool's result, at most")
args = args.parse_args()

rng = random.Random(args.seed)
WORDS = ["".join(rng.choice("etaoinshrdlucmfwyp") for _ in range(rng.randint(2, 9))) for _ in range(4000)]
TOOLS = [{"type": "function", "function": {"name": name, "description": " ".join(rng.choices(WORDS, k=60)), "parameters": {"type": "object", "properties": {
    key: {"type": "string", "description": " ".join(rng.choices(WORDS, k=15))} for key in ("path", "pattern", "limit")}}}} for name in ("read", "write", "search", "shell", "list")]
SYSTEM = " ".join(rng.choices(WORDS, k=1500))
LINES = [" " * rng.randint(0, 8) + "auto %s = %s(%s);\n" % tuple(rng.choices(WORDS, k=3)) for _ in range(50000)]


target, written, clock, session = args.megabytes * 1e6, 0, 1793491200.0, 0
while written < target:
    session += 1
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": " ".join(rng.choices(WORDS, k=80))}]
    for call in range(args.calls):
        clock += rng.expovariate(1 / 8)
        line = json.dumps({"timestamp": round(clock, 3), "session_id": "s%d" % session, "user": "u%d" % (session % 9), "request": {
            "model": "deepseek-v4-flash", "messages": messages, "tools": TOOLS}}, ensure_ascii=False)
        print(line)
        written += len(line)
        call_id = "call_%d" % call
        messages.append({"role": "assistant", "content": "", "reasoning_content": " ".join(rng.choices(WORDS, k=60)), "tool_calls": [{
            "id": call_id, "type": "function", "function": {"name": rng.choice(TOOLS)["function"]["name"], "arguments": json.dumps({"path": rng.choice(WORDS)})}}]})
        messages.append({"role": "tool", "tool_call_id": call_id, "content": "".join(rng.choices(LINES, k=rng.randint(args.lines // 12, args.lines)))})
