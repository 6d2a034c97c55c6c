//! The same calls made directly and through the kernel, and their answers held side by side.

use mgp_tests::harness::handshake::FULL;
use mgp_tests::harness::{Agent, Answer, DEADLINE, Kernel, Program, wait_until};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The version that all sides speak, so that nothing has to be left out for anybody.
pub(crate) const SPOKEN: &str = "2025-11-25";

/// A server that was started twice: once by the test, once by the kernel.
pub(crate) struct BothWays {
    pub(crate) kernel: Kernel,
    direct: Agent,
    through: Vec<(&'static str, Agent)>,
}

impl BothWays {
    /// The server as a child of the test, and as a child of a kernel that is asked over both doors.
    pub(crate) async fn start(program: &Program) -> Self {
        let direct = Agent::over_stdio(program);
        Self::with(&program.entry("it"), direct).await
    }

    /// `direct` beside the server that `entry` describes under the id `it`.
    pub(crate) async fn with(entry: &str, mut direct: Agent) -> Self {
        let kernel = Kernel::start(entry).await;
        kernel.connected(&["it"]).await;
        let mut through = vec![
            ("over HTTP", kernel.http_agent(Some("it"))),
            ("over mgp stdio", kernel.stdio_agent(Some("it"))),
        ];
        direct.initialize(SPOKEN, FULL).await;
        for (_, agent) in &mut through {
            agent.initialize(SPOKEN, FULL).await;
        }
        Self {
            kernel,
            direct,
            through,
        }
    }

    /// Every agent, the direct one first.
    pub(crate) fn everybody(&mut self) -> impl Iterator<Item = (&'static str, &mut Agent)> {
        let through = self.through.iter_mut().map(|(way, agent)| (*way, agent));
        std::iter::once(("directly", &mut self.direct)).chain(through)
    }

    /// From now on everybody answers such requests of the server with `result`.
    pub(crate) fn answer(&mut self, method: &str, result: &Value) {
        self.everybody()
            .for_each(|(_, agent)| agent.answers(method, result.clone()));
    }

    /// The same result or the same error, to the byte, whichever way it was asked for; gives it.
    pub(crate) async fn same(&mut self, method: &str, params: Value) -> Answer {
        let direct = self.direct.request(method, params.clone()).await;
        for (way, agent) in &mut self.through {
            let answer = agent.request(method, params.clone()).await;
            let (got, wanted) = (outcome(&answer), outcome(&direct));
            assert_eq!(got, wanted, "{method} {params} {way}");
        }
        direct
    }

    /// The same outcome of a tool call.
    pub(crate) async fn same_call(&mut self, name: &str, arguments: Value) -> Answer {
        let params = json!({"name": name, "arguments": arguments});
        self.same("tools/call", params).await
    }

    /// The same definitions, each to the byte and in the same order. Servers may add some after
    /// they were initialized, so the kernel is given until the deadline to have heard of it.
    pub(crate) async fn same_items(&mut self, method: &str, kind: &str) -> Vec<Value> {
        let direct = items(&self.direct.request(method, json!({})).await, kind);
        assert!(!direct.is_empty(), "{method} lists something");
        for (way, agent) in &mut self.through {
            let what = format!("{method} is the same {way}");
            let mut got = Vec::new();
            wait_until(&what, DEADLINE, async || {
                got = items(&agent.request(method, json!({})).await, kind);
                got.len() == direct.len()
            })
            .await;
            assert_eq!(got, direct, "{method} {way}");
        }
        direct
            .iter()
            .map(|item| serde_json::from_str(item).unwrap())
            .collect()
    }
}

#[derive(Deserialize)]
struct Outcome<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// The bytes of the result or of the error.
fn outcome(answer: &Answer) -> &str {
    let outcome: Outcome<'_> = serde_json::from_str(&answer.frame).unwrap();
    outcome.result.or(outcome.error).map_or("", RawValue::get)
}

/// The bytes of each definition in a list.
fn items(answer: &Answer, kind: &str) -> Vec<String> {
    let result: std::collections::HashMap<&str, &RawValue> =
        serde_json::from_str(answer.result_text()).unwrap();
    let items: Vec<&RawValue> = serde_json::from_str(result[kind].get()).unwrap();
    items.iter().map(|item| item.get().to_owned()).collect()
}
