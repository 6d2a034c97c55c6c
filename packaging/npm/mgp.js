#!/usr/bin/env node
// Runs the program of this platform, which npm installed as an optional dependency.
"use strict";

const { spawn } = require("node:child_process");
const name = `mgp-kernel-${process.platform}-${process.arch}`;

let program;
try {
  program = require.resolve(`${name}/bin/mgp`);
} catch {
  console.error(
    `mgp: there is no program for ${process.platform} on ${process.arch} here (${name}).\n` +
      "If npm left out optional dependencies, install without --omit=optional; " +
      "on other platforms build mgp from its sources.",
  );
  process.exit(1);
}

const args = process.argv.slice(2);
if (typeof process.execve === "function") {
  // The program takes the place of this process.
  process.execve(program, [program, ...args], process.env);
}
const child = spawn(program, args, { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => {
  console.error(`mgp: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (signal) {
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  } else {
    process.exit(code);
  }
});
