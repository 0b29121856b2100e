#!/usr/bin/env python3
"""A log of coding agents on stdout: sessions of 40 calls whose history grows by tool results. usage: make_agent_log.py MEGABYTES [SEED]"""
import json
import random
import sys

rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
WORDS = ["".join(rng.choice("etaoinshrdlucmfwyp") for _ in range(rng.randint(2, 9))) for _ in range(4000)]
TOOLS = [{"type": "function", "function": {"name": name, "description": " ".join(rng.choices(WORDS, k=60)), "parameters": {"type": "object", "properties": {
    key: {"type": "string", "description": " ".join(rng.choices(WORDS, k=15))} for key in ("path", "pattern", "limit")}}}} for name in ("read", "write", "search", "shell", "list")]
SYSTEM = " ".join(rng.choices(WORDS, k=1500))


def code(lines):
    return "\n".join("%5d\t%sauto %s = %s(%s);" % (i, " " * rng.randint(0, 8), *rng.choices(WORDS, k=3)) for i in range(lines))


target, written, clock, session = float(sys.argv[1]) * 1e6, 0, 1793491200.0, 0
while written < target:
    session += 1
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": " ".join(rng.choices(WORDS, k=80))}]
    for call in range(40):
        clock += rng.expovariate(1 / 8)
        line = json.dumps({"timestamp": round(clock, 3), "session_id": "s%d" % session, "user": "u%d" % (session % 9), "request": {
            "model": "deepseek-v4-flash", "messages": messages, "tools": TOOLS}}, ensure_ascii=False)
        print(line)
        written += len(line)
        call_id = "call_%d" % call
        messages.append({"role": "assistant", "content": "", "reasoning_content": " ".join(rng.choices(WORDS, k=60)), "tool_calls": [{
            "id": call_id, "type": "function", "function": {"name": rng.choice(TOOLS)["function"]["name"], "arguments": json.dumps({"path": rng.choice(WORDS)})}}]})
        messages.append({"role": "tool", "tool_call_id": call_id, "content": code(rng.randint(10, 120))})
