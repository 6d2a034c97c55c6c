//! What a task costs an agent in tokens until it knows the tool to call: the list of its tools, and what it asks and is
//! answered, at a real kernel with everyday servers, for each form of the answers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use mgp_engine::callers::token_cost;
use mgp_tests::harness::{Client, DEADLINE, Kernel, Program, wait_until};
use mgp_tests::load::{Cell, Table};
use serde::Deserialize;
use serde_json::{Value, json};

/// How many tools a second search answers, for those that are not in the first.
const SECOND: usize = 15;
/// The newest version with sessions.
const VERSION: &str = "2025-11-25";

/// What somebody asks for, and what does it.
#[derive(Deserialize)]
struct Asked {
    request: String,
    tools: Vec<String>,
}

/// What the tasks cost together.
#[derive(Default)]
struct Cost {
    list: u64,
    searches: u64,
    descriptions: u64,
    tasks: u64,
    first: u64,
    found: u64,
}

pub(crate) fn table(folder: &Path) -> Table {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let rows = runtime.block_on(rows(folder));
    Table {
        title: "Tokens a task, everyday requests",
        columns: &[
            "tools are",
            "list",
            "searches",
            "descriptions",
            "a task alone",
            "ten tasks, each",
            "right in the first answer",
            "right in the second",
        ],
        rows,
    }
}

async fn rows(folder: &Path) -> Vec<Vec<Cell>> {
    let text = |name: &str| fs::read_to_string(folder.join(name)).expect("it is in the repository");
    let tools: Vec<Value> = serde_json::from_str(&text("tools.json")).expect("tools");
    let halves = ["tuning.json", "held_out.json"].map(|name| {
        let half: Vec<Asked> = serde_json::from_str(&text(name)).expect("requests");
        half
    });
    let mut tasks: Vec<Asked> = halves.into_iter().flatten().collect();
    tasks.retain(|task| !task.tools.is_empty());
    let mut rows = Vec::new();
    for (name, exposure, answers) in [
        ("all listed", "all", "whole"),
        ("found, whole answers", "discovery", "whole"),
        ("found, brief answers", "discovery", "brief"),
    ] {
        let cost = measure(&tools, &tasks, exposure, answers).await;
        let each = |sum: u64| sum as f64 / cost.tasks.max(1) as f64;
        let task = each(cost.searches + cost.descriptions);
        let share = |count: u64| match exposure {
            "all" => Cell::Nothing,
            _ => Cell::Number(each(count), 2),
        };
        rows.push(vec![
            name.into(),
            Cell::Number(cost.list as f64, 0),
            Cell::Number(each(cost.searches), 0),
            Cell::Number(each(cost.descriptions), 0),
            Cell::Number(cost.list as f64 + task, 0),
            Cell::Number(cost.list as f64 / 10.0 + task, 0),
            share(cost.first),
            share(cost.found),
        ]);
    }
    rows
}

/// A kernel with the everyday servers, whose tools are scripted.
async fn start(tools: &[Value], exposure: &str, answers: &str) -> Kernel {
    let mut servers: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for tool in tools {
        let server = tool["server_id"].as_str().expect("a server");
        let mut definition = tool.clone();
        let members = definition.as_object_mut().expect("an object");
        members.retain(|name, value| !name.starts_with("server_") && !value.is_null());
        let flags = servers.entry(server).or_default();
        flags.push(format!("--tool={definition}"));
    }
    let entries = servers.iter().map(|(id, flags)| {
        let flags: Vec<&str> = flags.iter().map(String::as_str).chain(["--bare"]).collect();
        Program::fixture(&flags).entry(id)
    });
    let entries: String = entries.collect();
    // The scripted server has tools of its own besides.
    let names = tools.iter().map(|tool| {
        let text = |name: &str| tool[name].as_str().unwrap_or_default().to_owned();
        format!("{}:{}", text("server_id"), text("name"))
    });
    let names: Vec<String> = names.collect();
    let finding = format!(
        "\n[sets.everyday]\ntools = {names:?}\n[discovery]\nexposure = \"{exposure}\"\nanswers = \"{answers}\"\n"
    );
    let kernel = Kernel::start(&format!("{entries}{finding}")).await;
    let ids: Vec<&str> = servers.keys().copied().collect();
    kernel.connected(&ids).await;
    wait_until("all tools are indexed", DEADLINE, async || {
        let found = kernel.mgp_json(&["tools", "find", "anything"]).await;
        found["index"]["waiting"] == 0 && found["index"]["by_meaning"] == found["index"]["tools"]
    })
    .await;
    kernel
}

async fn measure(tools: &[Value], tasks: &[Asked], exposure: &str, answers: &str) -> Cost {
    let kernel = start(tools, exposure, answers).await;
    let endpoint = format!("{}/p/everyday", kernel.url());
    let mut agent = Client::over_http(&endpoint, VERSION, "{}").await;
    let list = agent.request("tools/list", json!({})).await.result();
    let listed = list["tools"].as_array().expect("tools");
    let definitions = listed.iter().map(Value::to_string);
    let mut cost = Cost {
        list: definitions
            .map(|it| token_cost::estimate_definition(&it))
            .sum(),
        tasks: tasks.len() as u64,
        ..Cost::default()
    };
    if exposure == "all" {
        return cost;
    }
    for task in tasks {
        let (tokens, found) = search(&mut agent, &task.request, None).await;
        cost.searches += tokens;
        let mut right = find(&found, task);
        cost.first += u64::from(right.is_some());
        if right.is_none() {
            let (tokens, found) = search(&mut agent, &task.request, Some(SECOND)).await;
            cost.searches += tokens;
            right = find(&found, task);
        }
        cost.found += u64::from(right.is_some());
        if answers == "brief" {
            // An agent that found nothing describes the first one all the same.
            let name =
                right.unwrap_or_else(|| found[0]["name"].as_str().unwrap_or_default().to_owned());
            let (tokens, _) =
                call(&mut agent, "mgp_tools_describe", json!({"names": [name]})).await;
            cost.descriptions += tokens;
        }
    }
    cost
}

async fn search(agent: &mut Client, query: &str, most: Option<usize>) -> (u64, Vec<Value>) {
    let mut arguments = json!({"query": query});
    if let Some(most) = most {
        arguments["max_results"] = most.into();
    }
    let (tokens, answer) = call(agent, "mgp_tools_discover", arguments).await;
    (
        tokens,
        answer["tools"].as_array().cloned().unwrap_or_default(),
    )
}

/// The tokens of a call and its answer, and the answer.
async fn call(agent: &mut Client, tool: &str, arguments: Value) -> (u64, Value) {
    let asked = json!({"name": tool, "arguments": arguments}).to_string();
    let answer = agent.call(tool, arguments).await.result();
    let text = answer["content"][0]["text"].as_str().expect("a text");
    let tokens = token_cost::estimate_text(&asked) + token_cost::estimate_text(text);
    let answer = serde_json::from_str(text).expect("an answer in JSON");
    (tokens, answer)
}

/// The name of a right tool among those that were found.
fn find(found: &[Value], task: &Asked) -> Option<String> {
    let names = found.iter().filter_map(|tool| tool["name"].as_str());
    let wanted = |name: &&str| {
        let canonical = name.replacen("__", ":", 1);
        task.tools.contains(&canonical)
    };
    names.into_iter().find(wanted).map(str::to_owned)
}
