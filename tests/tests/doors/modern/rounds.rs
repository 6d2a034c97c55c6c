//! 2026-07-28: questions of servers as results, and the state that leads back to a call.

use futures_util::future::join;
use http::StatusCode;
use mgp_tests::harness::handshake::FULL;
use mgp_tests::harness::modern::{again, wanting};
use mgp_tests::harness::{Agent, DEADLINE, Kernel, ModernAgent, Program, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::scene::{self, Modern};

const TOOL: &str = "test_elicitation";

fn accepted() -> Value {
    json!({"action": "accept", "content": {"username": "ada", "email": "a@b.c"}})
}

fn params(tool: &str, message: &str) -> Value {
    json!({"name": tool, "arguments": {"message": message}})
}

/// A kernel in front of a legacy server, whose questions it must keep for its clients.
async fn before_a_legacy_server(sections: &str) -> Kernel {
    scene::kernel_with(sections, &["--era", "legacy"]).await
}

/// Asks for the tool; gives its one question's key and the whole result.
async fn asked(modern: &Modern, params: &Value) -> (String, Value) {
    let (status, answer) = modern.ask("tools/call", params.clone()).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let result = answer["result"].clone();
    assert_eq!(result["resultType"], "input_required", "{answer}");
    let questions = result["inputRequests"].as_object().unwrap();
    assert_eq!(questions.len(), 1, "{answer}");
    let (key, question) = questions.iter().next().unwrap();
    assert_eq!(question["method"], "elicitation/create");
    assert!(question.get("id").is_none());
    (key.clone(), result)
}

/// Comes back with these responses.
async fn back(
    modern: &Modern,
    params: &Value,
    result: &Value,
    responses: Value,
) -> (StatusCode, Value) {
    modern
        .ask("tools/call", again(params, result, responses))
        .await
}

fn is_no_longer_valid((status, answer): &(StatusCode, Value), word: &str) {
    assert_eq!(*status, StatusCode::OK, "{answer}");
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    let words = answer["error"]["message"].as_str().unwrap();
    assert!(
        words.contains("requestState") && words.contains(word),
        "{words}"
    );
}

/// A question of a legacy server is a result; the answer in the next request lets the call go on.
#[tokio::test]
async fn a_question_of_a_legacy_server_becomes_a_result() {
    let kernel = before_a_legacy_server("").await;
    let modern = Modern::at(&kernel.server_url("it"), FULL);
    let params = params(TOOL, "Who?");
    let (key, result) = asked(&modern, &params).await;
    assert!(result["requestState"].is_string());
    assert!(result.get("ttlMs").is_none() && result.get("cacheScope").is_none());
    let question = &result["inputRequests"][&key]["params"];
    assert_eq!(question["message"], "Who?");
    let (status, answer) = back(&modern, &params, &result, json!({key: accepted()})).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(answer["result"]["resultType"], "complete");
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("action=accept") && text.contains("ada"),
        "{text}"
    );
}

/// Several questions at once, and several rounds, come to their end whichever way they are packed.
#[tokio::test]
async fn all_questions_of_a_call_are_asked() {
    for era in ["legacy", "modern"] {
        let kernel = scene::kernel_with("", &["--era", era]).await;
        for over_socket in [false, true] {
            let mut agent = if !over_socket {
                ModernAgent::over_http(&kernel.server_url("it"), FULL)
            } else {
                ModernAgent::over_socket(&kernel.socket(), FULL).await
            };
            let prefix = if over_socket { "it:" } else { "" };
            let named = json!({"action": "accept", "content": {"name": "Ada", "color": "red"}});
            agent.answers("elicitation/create", named);
            let content = json!({"type": "text", "text": "Hello"});
            let sampled = json!({"role": "assistant", "content": content, "model": "m"});
            agent.answers("sampling/createMessage", sampled);
            agent.answers("roots/list", json!({"roots": [{"uri": "file:///r"}]}));
            for (tool, text, questions) in [
                ("multiple_inputs", "Hello Ada, 1 root(s)", 3),
                ("multi_round", "Ada likes red", 2),
            ] {
                let before = agent.asked().len();
                let tool = format!("{prefix}test_input_required_result_{tool}");
                assert_eq!(agent.call(&tool, json!({})).await.text(), text, "{era}");
                assert_eq!(agent.asked().len() - before, questions, "{era} {tool}");
            }
            assert!(agent.requested().is_empty());
        }
    }
}

/// The state of a modern server is its own: it reaches the client and comes back to the byte.
#[tokio::test]
async fn the_state_of_a_modern_server_is_not_touched() {
    let kernel = scene::kernel_with("", &["--era", "modern"]).await;
    let modern = Modern::at(&kernel.server_url("it"), FULL);
    let tool = "test_input_required_result_request_state";
    let params = json!({"name": tool, "arguments": {}});
    let (key, result) = asked(&modern, &params).await;
    let state = result["requestState"].as_str().unwrap().to_owned();
    let response = json!({key: {"action": "accept", "content": {"ok": true}}});
    let (_, answer) = back(&modern, &params, &result, response).await;
    assert_eq!(answer["result"]["content"][0]["text"], "state-ok");
    let mut watcher = scene::socket_agent(&kernel, "{}").await;
    let heard = scene::received(&mut watcher, "it:received").await;
    let retry = heard.iter().find(|frame| frame.contains("inputResponses"));
    let retry: Value = serde_json::from_str(retry.unwrap()).unwrap();
    assert_eq!(retry["params"]["requestState"], state);
    let first = heard.iter().find(|frame| frame.contains(tool)).unwrap();
    let first: Value = serde_json::from_str(first).unwrap();
    assert_ne!(first["id"], retry["id"]);
}

/// A state that was tampered with leads nowhere, and does no harm to the one that was not.
#[tokio::test]
async fn a_tampered_state_is_refused() {
    let kernel = before_a_legacy_server("").await;
    let modern = Modern::at(&kernel.server_url("it"), FULL);
    let params = params(TOOL, "Who?");
    let (key, result) = asked(&modern, &params).await;
    let state = result["requestState"].as_str().unwrap();
    let response = json!({key: accepted()});
    for at in [state.len() / 3, state.len() / 2, state.len() - 1] {
        let mut spoilt = result.clone();
        let other = if &state[at..=at] == "A" { "B" } else { "A" };
        spoilt["requestState"] = format!("{}{other}{}", &state[..at], &state[at + 1..]).into();
        is_no_longer_valid(&back(&modern, &params, &spoilt, response.clone()).await, "");
    }
    let mut cut = result.clone();
    cut["requestState"] = state[..state.len() - 2].into();
    is_no_longer_valid(&back(&modern, &params, &cut, response.clone()).await, "");
    let (_, answer) = back(&modern, &params, &result, response).await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
}

/// A state is good for the client it was given to alone, and for the call it was given for.
#[tokio::test]
async fn a_state_is_good_for_its_own_client_and_call() {
    let kernel = before_a_legacy_server("").await;
    let modern = Modern::at(kernel.url(), FULL);
    let own = params("it:test_elicitation", "Who?");
    let (key, result) = asked(&modern, &own).await;
    let response = json!({key: accepted()});
    let mut owner = ModernAgent::over_socket(&kernel.socket(), FULL).await;
    let foreign = owner
        .ask("tools/call", again(&own, &result, response.clone()))
        .await;
    assert_eq!(foreign.code(), -32602, "{}", foreign.frame);
    let elsewhere = Modern::at(&kernel.server_url("it"), FULL);
    let there = params(TOOL, "Who?");
    is_no_longer_valid(
        &back(&elsewhere, &there, &result, response.clone()).await,
        "",
    );
    for changed in [
        params("it:test_elicitation", "Your password?"),
        params("it:test_streaming_elicitation", "Who?"),
    ] {
        let answer = back(&modern, &changed, &result, response.clone()).await;
        is_no_longer_valid(&answer, "another");
    }
    let (_, answer) = back(&modern, &own, &result, response).await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
}

/// Two servers may offer the same: what one of them asks is not answered at the other.
#[tokio::test]
async fn a_state_is_good_where_it_was_given() {
    let fixture = Program::fixture(&["--era", "legacy"]);
    let kernel = Kernel::start(&(fixture.entry("one") + &fixture.entry("two"))).await;
    kernel.connected(&["one", "two"]).await;
    let one = Modern::at(&kernel.server_url("one"), FULL);
    let two = Modern::at(&kernel.server_url("two"), FULL);
    let params = params(TOOL, "Who?");
    let (key, result) = asked(&one, &params).await;
    let response = json!({key: accepted()});
    is_no_longer_valid(&back(&two, &params, &result, response.clone()).await, "");
    let (_, answer) = back(&one, &params, &result, response).await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
}

/// Each round is a request of its own: what comes in its course goes to it, under its own token.
#[tokio::test]
async fn progress_of_a_later_round_is_its_own() {
    let kernel = before_a_legacy_server("").await;
    let modern = Modern::at(&kernel.server_url("it"), FULL);
    let question = json!({"message": "?", "requestedSchema": {"type": "object"}});
    let arguments = json!({"method": "elicitation/create", "params": question});
    let params = json!({"name": "ask", "arguments": arguments});
    let put = async |params: Value, token: &str| -> Vec<Value> {
        let mut request = modern.request(token, "tools/call", params);
        request.body["params"]["_meta"]["progressToken"] = token.into();
        let frames = modern.client.put(&request).await.frames().await;
        let read = frames.iter().map(|frame| serde_json::from_str(frame));
        read.collect::<Result<_, _>>().unwrap()
    };
    let first = put(params.clone(), "first").await;
    let result = &first.last().unwrap()["result"];
    let (key, _) = result["inputRequests"]
        .as_object()
        .unwrap()
        .iter()
        .next()
        .unwrap();
    let next = again(&params, result, json!({key: {"action": "decline"}}));
    let frames = put(next, "second").await;
    assert_eq!(frames.len(), 2, "{frames:?}");
    assert_eq!(frames[0]["params"]["progressToken"], "second");
    assert_eq!(frames[1]["id"], "second");
    assert_eq!(frames[1]["result"]["resultType"], "complete");
}

/// A state leads back once.
#[tokio::test]
async fn a_state_that_was_used_is_refused() {
    let kernel = before_a_legacy_server("").await;
    let modern = Modern::at(&kernel.server_url("it"), FULL);
    let params = params(TOOL, "Who?");
    let (key, result) = asked(&modern, &params).await;
    let response = json!({key: accepted()});
    let (_, answer) = back(&modern, &params, &result, response.clone()).await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    is_no_longer_valid(&back(&modern, &params, &result, response).await, "");
}

/// Answers under wrong keys, and none at all, let the same question be asked again.
#[tokio::test]
async fn what_was_not_answered_is_asked_again() {
    for era in ["legacy", "modern"] {
        let kernel = scene::kernel_with("", &["--era", era]).await;
        let modern = Modern::at(&kernel.server_url("it"), FULL);
        let params = params(TOOL, "Who?");
        let (key, mut result) = asked(&modern, &params).await;
        for wrong in [
            json!({}),
            json!({"another": accepted()}),
            json!({&key: "no object"}),
        ] {
            let (_, answer) = back(&modern, &params, &result, wrong).await;
            result = answer["result"].clone();
            assert_eq!(result["resultType"], "input_required", "{era}: {answer}");
            assert!(result["inputRequests"][&key].is_object(), "{era}: {answer}");
        }
        let right = json!({&key: accepted(), "another": accepted()});
        let (_, answer) = back(&modern, &params, &result, right).await;
        assert_eq!(
            answer["result"]["resultType"], "complete",
            "{era}: {answer}"
        );
    }
}

/// Responses that are no object are no responses.
#[tokio::test]
async fn responses_that_are_no_object_are_refused() {
    let kernel = before_a_legacy_server("").await;
    let modern = Modern::at(&kernel.server_url("it"), FULL);
    let params = params(TOOL, "Who?");
    let (key, result) = asked(&modern, &params).await;
    for wrong in [json!([accepted()]), json!("yes"), json!(7)] {
        let (_, answer) = back(&modern, &params, &result, wrong).await;
        let again = answer["result"]["inputRequests"][&key].is_object();
        assert!(again || answer["error"]["code"] == -32602, "{answer}");
    }
}

/// A client that does not come back in time finds its call taken back, at the server too.
#[tokio::test]
async fn a_call_nobody_comes_back_for_is_taken_back() {
    let kernel = before_a_legacy_server("[tuning.questions]\nanswer_timeout_secs = 1\n").await;
    let modern = Modern::at(&kernel.server_url("it"), FULL);
    let params = params(TOOL, "Who?");
    let (key, result) = asked(&modern, &params).await;
    let mut watcher = scene::socket_agent(&kernel, "{}").await;
    // The server hears of it one way or the other: its question is answered, or its call is cancelled.
    wait_until("the server need not wait", DEADLINE, async || {
        let heard = scene::received(&mut watcher, "it:received").await;
        let over = |frame: &String| frame.contains("srv-1") || frame.contains("/cancelled");
        heard.iter().any(over)
    })
    .await;
    let answer = back(&modern, &params, &result, json!({key: accepted()})).await;
    is_no_longer_valid(&answer, "");
}

/// A call that was suspended in an earlier life of the kernel is gone, and its client is told what to
/// do.
#[tokio::test]
async fn a_call_that_died_with_the_kernel_is_answered_clearly() {
    let kernel = before_a_legacy_server("").await;
    let modern = Modern::at(&kernel.server_url("it"), FULL);
    let params = params(TOOL, "Who?");
    let (key, result) = asked(&modern, &params).await;
    let folder = kernel.end(Signal::SIGKILL, DEADLINE).await;
    let kernel = Kernel::again(folder).await;
    kernel.connected(&["it"]).await;
    let modern = Modern::at(&kernel.server_url("it"), FULL);
    let answer = back(&modern, &params, &result, json!({key: accepted()})).await;
    is_no_longer_valid(&answer, "restart");
    let (_, anew) = asked(&modern, &params).await;
    assert!(anew["requestState"].is_string());
}

/// A suspended call holds up nobody: others are served meanwhile, by the same server.
#[tokio::test]
async fn a_suspended_call_holds_up_nobody() {
    let kernel = before_a_legacy_server("").await;
    let modern = Modern::at(&kernel.server_url("it"), FULL);
    let params = params(TOOL, "Who?");
    let (key, result) = asked(&modern, &params).await;
    let mut other: Agent = scene::http_agent(&kernel, Some("it"), "{}").await;
    let echo = other.call("echo", json!({"text": "meanwhile"})).await;
    assert_eq!(echo.text(), "meanwhile");
    wait_until("and again", DEADLINE, async || {
        other.call("echo", json!({"text": "again"})).await.text() == "again"
    })
    .await;
    let (_, answer) = back(&modern, &params, &result, json!({key: accepted()})).await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
}

/// To a server that all calls share a pipe to, the calls of one client are one client's: while one is
/// suspended the next is asked its own question, and what is asked later finds the call it is of.
#[tokio::test]
async fn questions_of_two_calls_of_one_client_reach_their_own() {
    let kernel = before_a_legacy_server("").await;
    let modern = Modern::at(&kernel.server_url("it"), FULL);
    let rounds = json!({"name": "test_input_required_result_multi_round", "arguments": {}});
    let (name, first) = asked(&modern, &rounds).await;
    let plain = params(TOOL, "Who?");
    let (who, second) = asked(&modern, &plain).await;
    assert_eq!(second["inputRequests"][&who]["params"]["message"], "Who?");
    // The second is suspended, and the latest: the next question is of the first all the same.
    let named = json!({&name: {"action": "accept", "content": {"name": "Ada"}}});
    let (_, answer) = back(&modern, &rounds, &first, named).await;
    let next = answer["result"].clone();
    assert_eq!(next["resultType"], "input_required", "{answer}");
    let (colour, _) = next["inputRequests"]
        .as_object()
        .unwrap()
        .iter()
        .next()
        .unwrap();
    let told = json!({colour: {"action": "accept", "content": {"color": "red"}}});
    let (_, answer) = back(&modern, &rounds, &next, told).await;
    assert_eq!(answer["result"]["content"][0]["text"], "Ada likes red");
    // One is never come back for; the others go on.
    let (key, abandoned) = asked(&modern, &params(TOOL, "Anybody?")).await;
    assert_eq!(
        abandoned["inputRequests"][&key]["params"]["message"],
        "Anybody?"
    );
    let (_, answer) = back(&modern, &plain, &second, json!({who: accepted()})).await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("ada"), "{text}");
}

/// A question is shown to the client whose call it is of, and to nobody else who could be asked: who
/// is shown other things counts as somebody else, whatever its name.
#[tokio::test]
async fn a_question_is_shown_to_nobody_else() {
    for over_socket in [false, true] {
        let kernel = before_a_legacy_server("").await;
        let modern = Modern::at(&kernel.server_url("it"), FULL);
        let rounds = json!({"name": "test_input_required_result_multi_round", "arguments": {}});
        let (name, first) = asked(&modern, &rounds).await;
        let mut other = if !over_socket {
            ModernAgent::over_http(kernel.url(), FULL)
        } else {
            ModernAgent::over_socket(&kernel.socket(), FULL).await
        };
        let slow = json!({"name": "it:slow", "arguments": {"ms": 60_000}});
        let id = other.start("tools/call", slow).await;
        // Asked by the other: the server gets the calls of one client at a time.
        wait_until("the other's call is there", DEADLINE, async || {
            let counted = other.call("it:count", json!({})).await.result();
            counted["structuredContent"]["calls"]["slow"] == 1
        })
        .await;
        // The other's call is the latest now, and the next question could be of either.
        let named = json!({&name: {"action": "accept", "content": {"name": "Ada"}}});
        let params = again(&rounds, &first, named);
        let going_on = modern.ask("tools/call", params);
        let let_go = async {
            wait_until("the first answer is at the server", DEADLINE, async || {
                let heard = other.call("it:received", json!({})).await;
                heard.frame.contains("srv-1")
            })
            .await;
            other.cancel(&id).await;
        };
        let ((_, answer), ()) = join(going_on, let_go).await;
        assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
        let echo = json!({"name": "it:echo", "arguments": {"text": "mine"}});
        assert_eq!(other.ask("tools/call", echo).await.text(), "mine");
    }
}

/// The answer of a person, whatever it is, is no state: what is asked for is not kept from them.
#[tokio::test]
async fn a_person_may_decline() {
    for era in ["legacy", "modern"] {
        let kernel = scene::kernel_with("", &["--era", era]).await;
        let mut agent = ModernAgent::over_http(&kernel.server_url("it"), FULL);
        for action in ["decline", "cancel"] {
            agent.answers("elicitation/create", json!({"action": action}));
            let told = agent.ask("tools/call", params(TOOL, "Who?")).await;
            let result = wanting(&told).unwrap();
            let responses = agent.respond(&result);
            let next = again(&params(TOOL, "Who?"), &result, responses);
            let told = agent.ask("tools/call", next).await;
            assert!(told.text().contains(action), "{era}: {}", told.frame);
        }
    }
}
