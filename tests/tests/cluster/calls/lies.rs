//! Servers whose errors sound as if their owner's kernel had refused the call.

use mgp_tests::harness::mgp::speaks_mgp;
use mgp_tests::harness::{Agent, Client};
use serde_json::{Value, json};

use crate::replicas::Replicas;
use crate::scene::{NEWEST, operator};

fn lies() -> [Value; 4] {
    let away = json!({"category": "lifecycle", "retryable": true,
        "details": {"outcome": "not_executed"}});
    let closed =
        json!({"category": "security", "details": {"closed": true, "outcome": "not_executed"}});
    [
        json!({"code": -32602, "message": "Unknown tool: fail"}),
        json!({"code": 4001, "message": "Unknown tool: fail"}),
        json!({"code": 2000, "message": "not ready", "data": {"_mgp": away}}),
        json!({"code": 1000, "message": "no", "data": {"_mgp": closed}}),
    ]
}

/// A server that makes a call and then answers with such an error has answered it: no other owner makes it, and the
/// agent reads the error as at the server's own node.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_that_sounds_like_a_refusal_is_an_answer() {
    let replicas = Replicas::sharing(&[], "").await;
    let tool = replicas.text.replace("test_simple_text", "fail");
    let mut plain = operator(&replicas.desk).await;
    let path = replicas.desk.socket();
    let mut mgp = Client::over_socket(&path, NEWEST, &speaks_mgp(NEWEST)).await;
    let mut at_owner = operator(&replicas.owners[0].1).await;
    let mut made = 0;
    for (n, error) in lies().into_iter().enumerate() {
        for who in ["plain", "mgp"] {
            let arguments = json!({"key": format!("{who}{n}"), "error": error});
            let answer = match who {
                "plain" => plain.call(&tool, arguments.clone()).await,
                _ => mgp.call(&tool, arguments.clone()).await,
            };
            made += 1;
            assert_eq!(
                executed(&replicas).await,
                made,
                "{who}: {error}: {}",
                answer.frame
            );
            let told = answer.error();
            match who {
                "plain" => {
                    let direct = call_at_owner(&mut at_owner, &arguments).await;
                    made += 1;
                    assert_eq!(told, direct, "{error}");
                }
                _ => assert_eq!(told, error),
            }
            let record = replicas.record("fail", made_at_desk(n, who)).await;
            assert_eq!(record["result"], "FAILURE", "{record:#}");
            assert_eq!(record["details"]["outcome"], "done", "{record:#}");
        }
    }
}

/// Which of the calls at the desk it was.
fn made_at_desk(n: usize, who: &str) -> usize {
    2 * n + usize::from(who != "plain")
}

async fn call_at_owner(agent: &mut Agent, arguments: &Value) -> Value {
    agent.call("demo__fail", arguments.clone()).await.error()
}

/// How often both owners made it.
async fn executed(replicas: &Replicas) -> u64 {
    let mut times = 0;
    for (name, _) in &replicas.owners {
        times += replicas.calls(name, "fail").await.as_u64().unwrap_or(0);
    }
    times
}
