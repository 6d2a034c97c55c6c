//! What the kernel takes is JSON to Python as well (most servers are written in it), with the same method, id, params,
//! result and error. One interpreter answers for all inputs, over a pipe.
#![no_main]

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{LazyLock, Mutex};

use libfuzzer_sys::fuzz_target;
use mgp_protocol::framing::to_one_line_bytes;
use mgp_protocol::jsonrpc::{self, Message};

/// Reads a message on a line and on the next one what the kernel makes of it; answers `same`, or what is not.
const READER: &str = r#"
import json, sys
from decimal import Decimal
def read(text):
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)
for line in sys.stdin.buffer:
    said = read(sys.stdin.buffer.readline().decode())
    try:
        message = read(line.decode())
        other = {name: message[name] for name in said if name in message}
        # Equal in Python are True and 1.
        print("same" if repr(other) == repr(said) else f"{other!r} is not {said!r}", flush=True)
    except Exception as e:
        print(repr(e), flush=True)
"#;

struct Interpreter {
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
}

static PYTHON: LazyLock<Mutex<Interpreter>> = LazyLock::new(|| {
    let mut command = Command::new("python3");
    command.args(["-c", READER]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("python3 is installed");
    Mutex::new(Interpreter {
        asks: child.stdin.take().expect("it was piped"),
        answers: BufReader::new(child.stdout.take().expect("it was piped")),
    })
});

fuzz_target!(|frame: &[u8]| {
    let Ok(message) = jsonrpc::parse(frame) else {
        return;
    };
    let mut said = Vec::new();
    match &message {
        Message::Request { id, method, .. } => {
            said.push(("id", id.as_json().to_owned()));
            said.push(("method", serde_json::json!(&**method).to_string()));
        }
        Message::Notification { method, .. } => {
            said.push(("method", serde_json::json!(&**method).to_string()));
        }
        Message::Response { outcome, .. } => match outcome {
            Ok(raw) => said.push(("result", raw.get().to_owned())),
            Err(raw) => said.push(("error", raw.get().to_owned())),
        },
    }
    if let Some(params) = message.params() {
        said.push(("params", params.to_owned()));
    }
    let members: Vec<String> = said
        .iter()
        .map(|(name, raw)| format!("\"{name}\":{raw}"))
        .collect();
    let said = format!("{{{}}}", members.join(","));
    let mut python = PYTHON.lock().expect("no other input failed");
    for line in [to_one_line_bytes(frame), to_one_line_bytes(said.as_bytes())] {
        python.asks.write_all(&line).expect("it reads");
        python.asks.write_all(b"\n").expect("it reads");
    }
    let mut answer = String::new();
    python.answers.read_line(&mut answer).expect("it answers");
    assert_eq!(answer.trim_end(), "same");
});
