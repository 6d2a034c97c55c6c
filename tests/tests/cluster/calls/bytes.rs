//! What a server says and what it is told, to the byte: across nodes it is what it would be at home.

use std::collections::HashMap;

use mgp_tests::harness::envelope::MODERN;
use mgp_tests::harness::kernel::nodes::JoinedNodes;
use mgp_tests::harness::{Envelope, HttpClient, Program};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::scene::NEWEST;

/// Keys in an odd order and twice, numbers no float holds, half of a character, every kind of escape. Between the
/// members of the result itself stands no space: that is all a bridge between eras may change.
const ODD: [&str; 4] = [
    r#"{"content":[{"type":"text","text":"a\u00e9\ud83e\udd80\/\"\\\n é"}],"zeta":1,"alpha":{"b":[1.0,1e300,-0,12345678901234567890123,0.1000000000000000055511151231257827],"a":null},"":{},"dup ":" spaces "}"#,
    r#"{"content":[ ],"x":1e400,"y":-1E-400,"z":{ "deep" : [ 1e400 ,	2 ] , "e":0.10e+01}}"#,
    r#"{"content":[{"type":"text","text":"\ud800 alone"}],"\ud800":"\udc00","\u0000":"\u0000"}"#,
    r#"{"content":[],"same":1,"same":{"same":[],"same":2},"structuredContent":{"k":1,"k":2,"\u006b":3}}"#,
];

/// Members of params that nobody has heard of, and arguments that nobody would write.
const ARGUMENTS: &str = r#"{"zeta":1,"zeta":[ 2 ],"alpha":{"b":[1.0,1e300,-0,12345678901234567890123],"a":null},"text":"a\u00e9\ud83e\udd80\u0000\/\"\\\n é","":{},"dup ":" spaces "}"#;

/// A client of one version at one door of one kernel.
struct RawClient {
    client: HttpClient,
    envelope: Option<Envelope>,
}

impl RawClient {
    async fn at(url: &str, version: &str) -> Self {
        let mut client = HttpClient::new(url);
        let envelope = (version == MODERN).then(|| Envelope::new("{}"));
        if envelope.is_none() {
            client.open_session(version, "{}").await;
        }
        Self { client, envelope }
    }

    /// What comes back for a call with these params, which may be no JSON that can be built.
    async fn call(&self, name: &str, rest: &str) -> String {
        let mut client = self.client.clone();
        let mut meta = String::new();
        if let Some(envelope) = &self.envelope {
            let request = envelope.request(&json!(77), "tools/call", json!({"name": name}));
            client.headers.extend(request.headers.clone());
            meta = format!(r#","_meta":{}"#, request.body["params"]["_meta"]);
        }
        let params = format!(r#"{{"name":"{name}"{rest}{meta}}}"#);
        let call =
            format!(r#"{{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{params}}}"#);
        let frames = client.post(call).await.frames().await;
        frames.into_iter().next_back().expect("an answer")
    }
}

/// The raw members of an object.
fn members(text: &str) -> HashMap<&str, &RawValue> {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// MCP-031, CMCP-001, PRJ-013, FED-011: what a server answers, and an error of it, is the same to the byte whether its
/// caller is at home or at another node, in both eras of either.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_the_same_to_the_byte_at_home_and_at_another_node() {
    for era in ["legacy", "modern"] {
        let server = Program::fixture(&["--era", era]).entry("demo");
        let nodes = JoinedNodes::sharing(&server, &["demo"]).await;
        for version in [NEWEST, MODERN] {
            let home = RawClient::at(&nodes.nas.server_url("demo"), version).await;
            let away = RawClient::at(&nodes.desk.server_url("nas/demo"), version).await;
            for odd in ODD {
                let said = match era {
                    "modern" => odd.replacen('{', r#"{"resultType":"complete","#, 1),
                    _ => odd.to_owned(),
                };
                for part in ["result", "error"] {
                    let said = match part {
                        "error" => format!(r#"{{"code":-32077,"message":"odd","data":{odd}}}"#),
                        _ => said.clone(),
                    };
                    let line = format!(r#"{{"jsonrpc":"2.0","id":ID,"{part}":{said}}}"#);
                    let arguments = format!(r#","arguments":{}"#, json!({"line": line}));
                    let wanted = home.call("write", &arguments).await;
                    let came = away.call("write", &arguments).await;
                    assert_eq!(came, wanted, "{era} {version}");
                    let inner = odd.trim_matches(['{', '}', ' ']);
                    assert!(came.contains(inner), "{era} {version}: {came}");
                }
            }
        }
    }
}

/// CMCP-002, CMCP-003, PRJ-013, FED-011: so are the arguments that a server is given, and what it does not know.
#[tokio::test(flavor = "multi_thread")]
async fn arguments_are_the_same_to_the_byte_at_home_and_at_another_node() {
    for era in ["legacy", "modern"] {
        let server = Program::fixture(&["--era", era]).entry("demo");
        let nodes = JoinedNodes::sharing(&server, &["demo"]).await;
        for version in [NEWEST, MODERN] {
            let home = RawClient::at(&nodes.nas.server_url("demo"), version).await;
            let away = RawClient::at(&nodes.desk.server_url("nas/demo"), version).await;
            let odd = format!(r#","x-unknown":{ARGUMENTS},"arguments":{ARGUMENTS}"#);
            for client in [&home, &away] {
                client.call("greet", &odd).await;
            }
            let told = home.call("received", "").await;
            let told: Value = serde_json::from_str(&told).unwrap();
            let frames = &told["result"]["structuredContent"]["frames"];
            let frames = frames.as_array().unwrap().iter();
            let frames = frames.map(|frame| frame.as_str().unwrap());
            let calls: Vec<&str> = frames.filter(|frame| frame.contains("x-unknown")).collect();
            let calls = &calls[calls.len() - 2..];
            for call in calls {
                let params = members(members(call)["params"].get());
                for member in ["arguments", "x-unknown"] {
                    assert_eq!(params[member].get(), ARGUMENTS, "{era} {version}: {call}");
                }
                assert_eq!(params["name"].get(), r#""greet""#);
            }
        }
    }
}
