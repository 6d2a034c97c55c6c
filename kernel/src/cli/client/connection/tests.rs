use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::UnixListener;
use tokio::net::unix::OwnedReadHalf;
use tokio::time::timeout;

use super::*;

/// Longest wait for a message.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The kernel's end of a connection, scripted line by line.
struct Kernel {
    lines: Lines<BufReader<OwnedReadHalf>>,
    output: OwnedWriteHalf,
}

impl Kernel {
    async fn receive(&mut self) -> Value {
        let line = timeout(TEST_TIMEOUT, self.lines.next_line())
            .await
            .expect("a line in time");
        serde_json::from_str(&line.unwrap().expect("a line before the end")).unwrap()
    }

    async fn send(&mut self, message: Value) {
        self.output
            .write_all(format!("{message}\n").as_bytes())
            .await
            .unwrap();
    }

    async fn answer(&mut self, method: &str, result: Value) -> Value {
        let asked = self.receive().await;
        assert_eq!(asked["method"], method, "{asked}");
        self.send(json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}))
            .await;
        asked
    }

    async fn initialize(&mut self) -> Value {
        let initialize = self
            .answer("initialize", json!({"protocolVersion": "2025-11-25"}))
            .await;
        assert_eq!(self.receive().await["method"], "notifications/initialized");
        initialize
    }
}

/// Runs a scripted kernel and a client together; returns the client's result.
async fn together<T>(
    play: impl AsyncFnOnce(Kernel),
    work: impl AsyncFnOnce(PathBuf) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mgp.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let kernel = async {
        let (reader, output) = listener.accept().await.unwrap().0.into_split();
        let lines = BufReader::new(reader).lines();
        play(Kernel { lines, output }).await;
    };
    let both = async { tokio::join!(kernel, work(path.clone())) };
    timeout(TEST_TIMEOUT, both).await.expect("an end in time").1
}

fn text(answer: &RawValue) -> &str {
    answer.get()
}

#[tokio::test]
async fn a_connection_declares_its_name_and_capabilities() {
    for (person, capabilities) in [
        (false, json!({})),
        (true, json!({"elicitation": {"form": {}}})),
    ] {
        let play = async move |mut kernel: Kernel| {
            let params = &kernel.initialize().await["params"];
            assert_eq!(params["capabilities"], capabilities);
            assert_eq!(params["protocolVersion"], "2025-11-25");
        };
        let work = async move |path: PathBuf| {
            let opening = ConnectOptions {
                is_interactive: person,
                ..ConnectOptions::default()
            };
            KernelClient::connect(&path, || None, opening)
                .await
                .map(drop)
        };
        together(play, work).await.unwrap();
    }
}

#[tokio::test]
async fn an_endpoint_is_opened_before_initialize() {
    let play = async |mut kernel: Kernel| {
        let open = kernel.answer("mgp/door/open", json!({})).await;
        assert_eq!(open["params"], json!({"server": "files"}));
        kernel.initialize().await;
    };
    let work = async |path: PathBuf| {
        let door = door::Open {
            server: Some("files".into()),
            set: None,
            agent: None,
            folder: None,
        };
        let opening = ConnectOptions {
            endpoint: Some(door),
            ..ConnectOptions::default()
        };
        KernelClient::connect(&path, || None, opening)
            .await
            .map(drop)
    };
    together(play, work).await.unwrap();
}

#[derive(Default)]
struct Notifications(Vec<String>);

impl RequestObserver for Notifications {
    fn on_notification(&mut self, method: &str, params: &str) -> Result<(), Failure> {
        self.0.push(format!("{method} {params}"));
        Ok(())
    }
}

/// While a request is open, pings are answered, unknown requests rejected, notifications observed, and answers to other
/// requests ignored.
#[tokio::test]
async fn messages_before_the_answer_are_handled() {
    let play = async |mut kernel: Kernel| {
        kernel.initialize().await;
        let asked = kernel.receive().await;
        kernel
            .send(json!({"jsonrpc": "2.0", "id": 999, "result": "not yours"}))
            .await;
        kernel
            .send(json!({"jsonrpc": "2.0", "id": "p", "method": "ping"}))
            .await;
        assert_eq!(
            kernel.receive().await,
            json!({"jsonrpc": "2.0", "id": "p", "result": {}})
        );
        for method in ["roots/list", "elicitation/create"] {
            kernel
                .send(json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": {}}))
                .await;
            assert_eq!(kernel.receive().await["error"]["code"], -32601, "{method}");
        }
        kernel
            .send(json!({"jsonrpc": "2.0", "method": "notifications/x", "params": {"a": 1}}))
            .await;
        kernel
            .send(json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"big": 1}}))
            .await;
    };
    let work = async |path: PathBuf| {
        let mut client = KernelClient::connect(&path, || None, ConnectOptions::default()).await?;
        let mut heard = Notifications::default();
        let answer = client.request("x/y", &json!({"p": 1}), &mut heard).await?;
        Ok((text(&answer).to_owned(), heard.0))
    };
    let (answer, heard) = together(play, work).await.unwrap();
    assert_eq!(answer, r#"{"big":1}"#);
    assert_eq!(heard, [r#"notifications/x {"a":1}"#]);
}

#[tokio::test]
async fn a_refusal_keeps_its_code_and_data() {
    let play = async |mut kernel: Kernel| {
        kernel.initialize().await;
        let asked = kernel.receive().await;
        let error = json!({"code": -32602, "message": "Unknown server: x", "data": {"a": 1}});
        kernel
            .send(json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}))
            .await;
    };
    let work = async |path: PathBuf| {
        let mut client = KernelClient::connect(&path, || None, ConnectOptions::default()).await?;
        client.request("x", &json!({}), &mut ()).await
    };
    match together(play, work).await {
        Err(Failure::ErrorResponse {
            code,
            message,
            data,
        }) => {
            assert_eq!((code, message.as_str()), (-32602, "Unknown server: x"));
            assert_eq!(data, Some(json!({"a": 1})));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_closed_connection_differs_from_an_absent_kernel() {
    let play = async |mut kernel: Kernel| {
        kernel.initialize().await;
    };
    let work = async |path: PathBuf| {
        let mut client = KernelClient::connect(&path, || None, ConnectOptions::default()).await?;
        client.request("x", &json!({}), &mut ()).await
    };
    let left = together(play, work).await.unwrap_err();
    assert!(left.to_string().contains("closed the connection"), "{left}");
    let folder = tempfile::tempdir().unwrap();
    let nobody = KernelClient::connect(
        &folder.path().join("none"),
        || None,
        ConnectOptions::default(),
    )
    .await;
    assert!(matches!(nobody.map(drop), Err(Failure::NotRunning(_))));
}

/// A dying kernel accepts connections and sends nothing; the retry counts.
#[tokio::test]
async fn a_connection_closed_without_an_answer_is_retried() {
    for lives in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mgp.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let kernel = async move {
            drop(listener.accept().await.unwrap());
            if lives {
                let (reader, output) = listener.accept().await.unwrap().0.into_split();
                let lines = BufReader::new(reader).lines();
                Kernel { lines, output }.initialize().await;
            }
        };
        let client = KernelClient::connect(&path, || None, ConnectOptions::default());
        let both = async { tokio::join!(kernel, client) };
        let connected = timeout(TEST_TIMEOUT, both).await.expect("an end in time").1;
        match connected {
            Ok(_) => assert!(lives),
            Err(Failure::NotRunning(_)) => assert!(!lives),
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn only_sockets_of_the_owner_and_root_are_accepted() {
    let own = nix::unistd::geteuid().as_raw();
    let socket = Path::new("/run/mgp.sock");
    assert!(check_owner(own, socket).is_ok() && check_owner(0, socket).is_ok());
    let error = check_owner(own + 1, socket).unwrap_err().to_string();
    assert!(error.contains("another user"), "{error}");
}
