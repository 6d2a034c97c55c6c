//! Real clients of gRPC: each is asked line by line, and says what came of it.

use std::process::Stdio;

use mgp_tests::harness::peers::{Need, Peers};
use mgp_tests::harness::wait::within;
use mgp_tests::harness::{DEADLINE, Kernel, Program};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// The text that stubs are made from.
const PROTO: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../transports/grpc/proto/mcplite.proto"
);

/// A client that runs. Dropping it ends it.
pub(crate) struct RpcClient {
    _process: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    /// Goes with each call.
    metadata: Value,
}

impl RpcClient {
    /// grpcio, with stubs that its compiler made from the document's text. `None` where it is not installed.
    pub(crate) fn python(kernel: &Kernel) -> Option<Self> {
        Self::python_with(&[&address(kernel)])
    }

    /// The same with other arguments.
    pub(crate) fn python_with(args: &[&str]) -> Option<Self> {
        let peers = Peers::find(&[Need::Python])?;
        Some(Self::run(&peers.python_script("lite/client_grpc.py", args)))
    }

    /// grpc-js. `None` where it is not installed.
    pub(crate) fn node(kernel: &Kernel) -> Option<Self> {
        let peers = Peers::find(&[Need::Node])?;
        let args = [&address(kernel), PROTO];
        Some(Self::run(&peers.node_script("lite/client_grpc.mjs", &args)))
    }

    fn run(program: &Program) -> Self {
        let mut command = Command::from(program.to_command());
        let piped = command.env("PYTHONDONTWRITEBYTECODE", "1");
        let piped = piped.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = piped.kill_on_drop(true).spawn().unwrap();
        Self {
            requests: process.stdin.take().unwrap(),
            answers: BufReader::new(process.stdout.take().unwrap()).lines(),
            _process: process,
            metadata: json!({}),
        }
    }

    /// The same, as the agent with this token.
    pub(crate) fn with_token(mut self, token: &str) -> Self {
        self.says("authorization", &format!("Bearer {token}"));
        self
    }

    /// Says this with each call from now on.
    pub(crate) fn says(&mut self, name: &str, value: &str) {
        self.metadata[name] = value.into();
    }

    /// Asks for one thing.
    pub(crate) async fn ask(&mut self, mut request: Value) -> Value {
        let mut metadata = self.metadata.clone();
        for (name, value) in request["metadata"].as_object().into_iter().flatten() {
            metadata[name] = value.clone();
        }
        request["metadata"] = metadata;
        let line = format!("{request}\n");
        self.requests.write_all(line.as_bytes()).await.unwrap();
        let answer = within(
            "an answer of the client",
            DEADLINE,
            self.answers.next_line(),
        );
        let answer = answer.await.unwrap().expect("the client is there");
        serde_json::from_str(&answer).unwrap()
    }

    /// Calls a tool.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask(json!({"op": "call", "name": tool, "arguments": arguments}))
            .await
    }

    /// Calls a tool on these terms.
    pub(crate) async fn call_on(&mut self, tool: &str, arguments: Value, terms: &Value) -> Value {
        let mut request = json!({"op": "call", "name": tool, "arguments": arguments});
        for (name, value) in terms.as_object().unwrap() {
            request[name] = value.clone();
        }
        self.ask(request).await
    }

    /// Calls a tool, and reads its messages to the end.
    pub(crate) async fn stream(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask(json!({"op": "stream", "name": tool, "arguments": arguments}))
            .await
    }
}

/// Where the door is, as clients of gRPC name it.
pub(crate) fn address(kernel: &Kernel) -> String {
    let door = kernel.url().split_once("//").unwrap().1;
    door.strip_suffix("/mcp").unwrap().to_owned()
}

/// What kind of an answer it is.
pub(crate) fn kind(answer: &Value) -> &str {
    let kind = answer["meta"]["response_type"].as_str();
    kind.unwrap_or_else(|| panic!("no kind: {answer}"))
}

/// The first text of a result.
pub(crate) fn text(answer: &Value) -> &str {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("no text: {answer}"))
}

/// The code of an error.
pub(crate) fn code(answer: &Value) -> &str {
    let code = answer["error"]["code"].as_str();
    code.unwrap_or_else(|| panic!("no error: {answer}"))
}

/// The token of a promise.
pub(crate) fn promise(answer: &Value) -> String {
    assert_eq!(kind(answer), "PROMISE", "{answer}");
    answer["meta"]["promise_token"].as_str().unwrap().to_owned()
}
