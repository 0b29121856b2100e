// Starts the server under test: SERVER_COMMAND and more arguments. It says its URL on stdout or stderr.
import { spawn } from "node:child_process";

const servers = [];

export async function start(...more) {
  const [program, ...args] = process.env.SERVER_COMMAND.split(" ");
  const server = spawn(program, [...args, ...more], { stdio: ["pipe", "pipe", "pipe"] });
  servers.push(server);
  return new Promise((resolve, reject) => {
    let seen = "";
    const read = (chunk) => {
      seen += chunk;
      const match = seen.match(/https?:\/\/[\w.-]+:\d+/);
      if (match) resolve(match[0]);
    };
    server.stdout.on("data", read);
    server.stderr.on("data", read);
    server.on("error", reject);
    server.on("exit", (code) => reject(new Error(`the server ended with ${code}: ${seen}`)));
  });
}

export function stop() {
  for (const server of servers) {
    server.stdin.end();
    server.kill();
  }
}
