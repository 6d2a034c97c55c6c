//! Push events (MCPL §9): which are accepted, who gets them, and what a retry is answered.

use std::time::{SystemTime, UNIX_EPOCH};

use mgp_tests::harness::mgp::{declaration, declaring};
use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const LEGACY: &str = "2025-11-25";
const EVENT: &str = "notifications/mgp.event";

/// A scripted server with these sets, which declares push events.
fn pushing(id: &str, sets: &Value) -> String {
    let said = json!({"version": "0.4", "pushEvents": true, "featureSets": sets});
    Program::fixture(&["--mcpl", &said.to_string()]).entry(id)
}

fn push_set(about: &str) -> Value {
    json!({"description": about, "uses": ["pushEvents"]})
}

/// The owner of the machine, over the socket.
async fn owner(kernel: &Kernel) -> Agent {
    let mut agent = Agent::over_socket(&kernel.socket()).await;
    agent.initialize(LEGACY, "{}").await.result();
    agent
}

/// An agent that agreed to events.
async fn follower(kernel: &Kernel) -> Agent {
    let mut agent = kernel.http_agent(None);
    let capabilities = declaring(LEGACY, "{}", &declaration(&["events"]));
    agent.initialize(LEGACY, &capabilities).await.result();
    agent
}

/// An agent that is an MCPL host and takes push events.
async fn host(kernel: &Kernel) -> Agent {
    let mut agent = kernel.stdio_agent(None);
    let said = json!({"experimental": {"mcpl": {
        "version": "0.4", "pushEvents": true, "featureSets": true
    }}});
    agent.initialize(LEGACY, &said.to_string()).await.result();
    // Events go to hosts that said that they are initialized, and no answer says that the kernel has read that.
    agent.request("ping", json!({})).await.result();
    agent
}

fn event(set: &str, id: &str, text: &str) -> Value {
    json!({
        "featureSet": set,
        "eventId": id,
        "timestamp": "2026-01-23T10:30:00Z",
        "origin": {"server": "gitlab-integration", "webhook": "push", "n": 1.50},
        "payload": {"content": [{"type": "text", "text": text}]},
    })
}

/// Has a server push; gives the host's result.
///
/// # Panics
/// With the whole answer, when it is an error.
async fn push_result(owner: &mut Agent, server: &str, params: &Value) -> Value {
    let answer = push(owner, server, params).await;
    assert!(answer["result"].is_object(), "{answer}");
    answer["result"].clone()
}

/// Has a server push; gives the host's whole answer.
async fn push(owner: &mut Agent, server: &str, params: &Value) -> Value {
    let asked = json!({"method": "push/event", "params": params});
    let said = owner
        .call(&format!("{server}__mcpl_ask"), asked)
        .await
        .result();
    said["structuredContent"].clone()
}

/// The channel of the set that most tests push with.
const ALERTS: &str = "push.git.ci.alerts";

/// The servers `git` and `mail`, and the owner, who makes them push.
struct Pushing {
    kernel: Kernel,
    owner: Agent,
}

impl Pushing {
    async fn start() -> Self {
        Self::with_rules("").await
    }

    async fn with_rules(rules: &str) -> Self {
        let sets = json!({
            "ci.alerts": push_set("Builds that failed"), "ci.slow": push_set("a"), "ci.night": push_set("b"),
            "ci.off": push_set("c"), "ci.tools": {"description": "d", "uses": ["tools"]},
        });
        let config = [
            pushing("git", &sets),
            pushing("mail", &json!({"inbox": push_set("New mail")})),
            "[mcpl.servers.git]\nenable = [\"ci.alerts\", \"ci.slow\", \"ci.night\", \"ci.tools\"]\n\
             [mcpl.servers.mail]\nenable = [\"*\"]\n\
             [mcpl.push]\nserver_per_minute = 0\n"
                .to_owned(),
            rules.to_owned(),
        ];
        let kernel = Kernel::start(&config.concat()).await;
        kernel.connected(&["git", "mail"]).await;
        let owner = owner(&kernel).await;
        Self { kernel, owner }
    }

    /// An agent that follows these channels.
    async fn follower(&self, channels: &[&str]) -> Agent {
        let mut follower = follower(&self.kernel).await;
        let asked = json!({"channels": channels});
        let answer = follower.request("mgp/events/subscribe", asked).await;
        assert_eq!(answer.result()["subscribed"], json!(channels));
        follower
    }

    /// The result of an event of `git`.
    async fn push(&mut self, params: &Value) -> Value {
        push_result(&mut self.owner, "git", params).await
    }

    /// The error of an event of `git`.
    async fn rejected(&mut self, params: &Value) -> Value {
        push(&mut self.owner, "git", params).await["error"].clone()
    }
}

fn accepted() -> Value {
    json!({"accepted": true})
}

fn assert_not_accepted(result: &Value, reason: &str) {
    assert_eq!(result["accepted"], false, "{result}");
    let given = result["reason"].as_str().unwrap_or_default();
    assert!(given.contains(reason), "{result}");
}

/// MCPL-078.
#[tokio::test]
async fn event_without_a_valid_required_member_is_rejected_by_its_name() {
    let mut pushing = Pushing::start().await;
    for member in ["featureSet", "eventId", "timestamp", "payload"] {
        let mut less = event("ci.alerts", "e", "x");
        less.as_object_mut().unwrap().remove(member);
        let error = pushing.rejected(&less).await;
        assert_eq!(error["code"], -32602, "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(member), "{error}");
    }
    for (pointer, wrong, named) in [
        ("/timestamp", json!("yesterday"), "timestamp"),
        ("/timestamp", json!(1_769_164_200), "string"),
        ("/origin", json!([]), "object"),
        (
            "/payload/content",
            json!([{"type": "image", "data": "aGk="}]),
            "payload.content",
        ),
        ("/payload/content", json!(7), "payload.content"),
        ("/eventId", json!(""), "eventId"),
    ] {
        let mut invalid = event("ci.alerts", "e", "x");
        *invalid.pointer_mut(pointer).unwrap() = wrong;
        let error = pushing.rejected(&invalid).await;
        assert_eq!(error["code"], -32602, "{pointer}: {error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(named), "{error}");
    }
}

/// MCPL-085.
#[tokio::test]
async fn event_of_a_set_that_may_not_push_is_rejected() {
    let mut pushing = Pushing::start().await;
    for (set, code) in [
        ("ci.off", -32001),
        ("ci.tools", -32001),
        ("ci.none", -32003),
        ("inbox", -32003),
    ] {
        let error = pushing.rejected(&event(set, "e", "x")).await;
        assert_eq!(error["code"], code, "{set}: {error}");
        assert_eq!(error["data"]["featureSet"], set);
    }
}

/// MCPL-011, MCPL-081: and it is not remembered.
#[tokio::test]
async fn event_that_nobody_takes_is_answered_with_a_reason() {
    let mut pushing = Pushing::start().await;
    let alert = event("ci.alerts", "evt_1", "New commit");
    assert_not_accepted(&pushing.push(&alert).await, ALERTS);
    let _follower = pushing.follower(&[ALERTS]).await;
    assert_eq!(pushing.push(&alert).await, accepted());
}

/// MCPL-079, A-14: with all members, and its origin as it was written.
#[tokio::test]
async fn event_reaches_the_followers_of_its_channel() {
    let mut pushing = Pushing::start().await;
    let mut follower = pushing.follower(&[ALERTS]).await;
    let alert = event("ci.alerts", "evt_1", "New commit");
    pushing.push(&alert).await;
    let params = follower.hears(EVENT).await["params"].clone();
    assert_eq!(params["channel"], ALERTS);
    assert_eq!(params["timestamp"], "2026-01-23T10:30:00Z");
    assert_eq!(params["_mgp.server_id"], "git");
    assert_eq!(params["data"]["event_id"], "evt_1");
    assert_eq!(params["data"]["origin"], alert["origin"]);
    assert_eq!(params["data"]["content"], alert["payload"]["content"]);
}

/// MCPL-080.
#[tokio::test]
async fn event_whose_content_is_a_string_has_one_block_of_text() {
    let mut pushing = Pushing::start().await;
    let mut follower = pushing.follower(&["push.mail.*"]).await;
    let mut mail = event("inbox", "evt_1", "");
    mail["payload"]["content"] = json!("A plain string");
    let result = push_result(&mut pushing.owner, "mail", &mail).await;
    assert_eq!(result, accepted());
    let params = follower.hears(EVENT).await["params"].clone();
    assert_eq!(params["channel"], "push.mail.inbox");
    assert_eq!(
        params["data"]["content"],
        json!([{"type": "text", "text": "A plain string"}])
    );
}

/// MCPL-082: also where it is spelt differently; another event under its id is not accepted.
#[tokio::test]
async fn retried_event_is_delivered_once_and_answered_alike() {
    let mut pushing = Pushing::start().await;
    let mut follower = pushing.follower(&[ALERTS]).await;
    let alert = event("ci.alerts", "evt_1", "New commit");
    for _ in 0..2 {
        assert_eq!(pushing.push(&alert).await, accepted());
    }
    let mut respelt = alert.clone();
    respelt["timestamp"] = json!("2026-01-23T11:00:00+01:00");
    assert_eq!(pushing.push(&respelt).await, accepted());
    let other = event("ci.alerts", "evt_1", "Something else");
    assert_not_accepted(&pushing.push(&other).await, "eventId");
    pushing.push(&event("ci.alerts", "evt_2", "x")).await;
    for id in ["evt_1", "evt_2"] {
        let params = follower.hears(EVENT).await["params"].clone();
        assert_eq!(params["data"]["event_id"], id);
    }
    assert!(follower.heard(EVENT).is_empty());
}

/// MCPL-083.
#[tokio::test]
async fn one_event_id_of_two_servers_is_two_events() {
    let mut pushing = Pushing::start().await;
    let mut follower = pushing.follower(&[ALERTS, "push.mail.*"]).await;
    pushing.push(&event("ci.alerts", "evt_1", "x")).await;
    let mail = event("inbox", "evt_1", "y");
    let result = push_result(&mut pushing.owner, "mail", &mail).await;
    assert_eq!(result, accepted());
    for server in ["git", "mail"] {
        let params = follower.hears(EVENT).await["params"].clone();
        assert_eq!(params["_mgp.server_id"], server);
    }
}

/// MCPL-142: a resource that changes is no event, and needs no set.
#[tokio::test]
async fn updated_resource_is_no_push_event() {
    let mut pushing = Pushing::start().await;
    let mut follower = pushing.follower(&["push.*"]).await;
    let updated =
        json!({"method": "notifications/resources/updated", "params": {"uri": "test://x"}});
    let done = pushing.owner.call("git__mcpl_tell", updated).await;
    done.result();
    pushing.push(&event("ci.alerts", "evt_1", "x")).await;
    let params = follower.hears(EVENT).await["params"].clone();
    assert_eq!(params["data"]["event_id"], "evt_1");
    assert!(follower.all_heard().is_empty());
}

///
#[tokio::test]
async fn subscription_names_the_channels_that_no_enabled_set_has() {
    let pushing = Pushing::start().await;
    let mut follower = follower(&pushing.kernel).await;
    let channels = [ALERTS, "push.mail.*", "push.git.ci.off", "push.nobody.x"];
    let asked = json!({"channels": channels});
    let answer = follower.request("mgp/events/subscribe", asked).await;
    let answer = answer.result();
    assert_eq!(answer["subscribed"], json!([ALERTS, "push.mail.*"]));
    assert_eq!(
        answer["unsupported"],
        json!(["push.git.ci.off", "push.nobody.x"])
    );
}

#[tokio::test]
async fn event_beyond_a_rate_an_hour_or_a_size_is_not_accepted() {
    let hour = |add: u64| {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        format!("{:02}:00", (now / 3600 + add) % 24)
    };
    let rules = format!(
        "[mcpl.push.sets.\"git.ci.slow\"]\nper_minute = 2\n\
         [mcpl.push.sets.\"git.ci.night\"]\nquiet_hours = \"{}-{} Z\"\n",
        hour(23),
        hour(2)
    );
    let mut pushing = Pushing::with_rules(&rules).await;
    let _follower = pushing.follower(&["push.git.*"]).await;
    for id in ["s0", "s1"] {
        assert_eq!(pushing.push(&event("ci.slow", id, "x")).await, accepted());
    }
    for (set, text, reason) in [
        ("ci.slow", "x".to_owned(), "2 events a minute"),
        ("ci.night", "x".to_owned(), "quiet hours"),
        ("ci.alerts", "x".repeat(70_000), "bytes"),
    ] {
        assert_not_accepted(&pushing.push(&event(set, "q", &text)).await, reason);
    }
}

/// A plain client reads the last events, and subscribes to more.
#[tokio::test]
async fn events_of_a_set_are_a_resource_of_clients_without_mcpl() {
    let mut pushing = Pushing::start().await;
    let _follower = pushing.follower(&[ALERTS]).await;
    pushing.push(&event("ci.alerts", "evt_1", "x")).await;
    let mut plain = pushing.kernel.http_agent(None);
    plain.initialize(LEGACY, "{}").await.result();
    let uri = json!({"uri": "mgp://push/git/ci.alerts"});
    let read = plain.request("resources/read", uri.clone()).await.result();
    let last: Value = serde_json::from_str(read["contents"][0]["text"].as_str().unwrap()).unwrap();
    let ids: Vec<_> = last["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| &event["data"]["event_id"])
        .collect();
    assert_eq!(ids, ["evt_1"]);
    let subscribed = plain.request("resources/subscribe", uri.clone()).await;
    subscribed.result();
    pushing.push(&event("ci.alerts", "evt_2", "x")).await;
    let updated = plain.hears("notifications/resources/updated").await;
    assert_eq!(updated["params"], uri);
    let disabled = json!({"uri": "mgp://push/git/ci.off"});
    let unknown = plain.request("resources/read", disabled).await;
    assert!(unknown.is_error(), "{}", unknown.frame);
}

/// an agent that may not use a server gets none of its events, and is not shown its channels.
#[tokio::test]
async fn events_of_a_server_go_to_agents_that_may_use_it() {
    let open = pushing("open", &json!({"a": push_set("x")}));
    let shut = pushing("shut", &json!({"a": push_set("x")}));
    let rules = "default_policy = \"opt-in\"\n[mcpl.servers.open]\nenable = [\"*\"]\n[mcpl.servers.shut]\nenable = [\"*\"]\n";
    let kernel = Kernel::start(&format!("{open}{shut}{rules}")).await;
    kernel.connected(&["open", "shut"]).await;
    let mut owner = owner(&kernel).await;
    let mut follower = follower(&kernel).await;
    let asked = json!({"channels": ["push.*", "push.shut.a"]});
    let said = follower
        .request("mgp/events/subscribe", asked)
        .await
        .result();
    assert_eq!(said["unsupported"], json!(["push.shut.a"]), "{said}");
    let channels = follower
        .request("mgp/events/channels", json!({}))
        .await
        .result();
    let channels = channels["channels"].to_string();
    assert!(
        channels.contains("push.open.a") && !channels.contains("push.shut.a"),
        "{channels}"
    );
    for uri in ["mgp://push/shut/a", "mgp://push/nobody/a"] {
        let error = follower
            .request("resources/read", json!({"uri": uri}))
            .await
            .error();
        assert_eq!(error["message"], format!("Resource not found: {uri}"));
    }
    // Nobody but the operator may hear of it, and the operator does not listen.
    let said = push(&mut owner, "shut", &event("a", "e1", "secret")).await;
    assert_eq!(said["result"]["accepted"], false, "{said}");
    let said = push(&mut owner, "open", &event("a", "e1", "x")).await;
    assert_eq!(said["result"]["accepted"], true, "{said}");
    assert_eq!(
        follower.hears(EVENT).await["params"]["channel"],
        "push.open.a"
    );
    assert!(follower.heard(EVENT).is_empty());
}

/// MCPL-154, MCPL-081, MCPL-084: an agent that is a host is asked in the names it knows, and what it answers comes
/// back; the answer is the same after a restart. An event that was under way when the kernel was killed is not handed
/// on again.
#[tokio::test]
async fn event_reaches_a_host_once_also_over_a_killed_kernel() {
    let entry = pushing("git", &json!({"ci.alerts": push_set("x")}));
    let rules = "[mcpl.servers.git]\nenable = [\"*\"]\n[mcpl.push]\nagent_timeout_ms = 60000\n";
    let kernel = Kernel::start(&format!("{entry}{rules}")).await;
    kernel.connected(&["git"]).await;
    let mut owner_agent = owner(&kernel).await;
    let mut agent = host(&kernel).await;
    agent.answers(
        "push/event",
        json!({"accepted": true, "inferenceId": "inf_1"}),
    );
    let first = event("ci.alerts", "evt_1", "x");
    let asked = json!({"method": "push/event", "params": first, "leave": true});
    owner_agent.call("git__mcpl_ask", asked).await.result();
    wait_until("the host is asked", DEADLINE, async || {
        let _ = agent.request("ping", json!({})).await;
        !agent.asked().is_empty()
    })
    .await;
    let told = agent.asked()[0]["params"].clone();
    assert_eq!(told["featureSet"], "git.ci.alerts", "{told}");
    assert_eq!(told["eventId"], "git:evt_1");
    assert_eq!(
        (&told["origin"], &told["payload"]),
        (&first["origin"], &first["payload"])
    );
    let said = push_result(&mut owner_agent, "git", &first).await;
    assert_eq!(said["accepted"], true, "{said}");
    assert!(said["inferenceId"].is_string(), "{said}");
    assert_eq!(agent.asked().len(), 1);

    // One that nobody answers, and the kernel is killed.
    let second = event("ci.alerts", "evt_2", "y");
    let journal = kernel.folder().join("data/mcpl-push.journal");
    let before = std::fs::metadata(&journal).unwrap().len();
    let asked = json!({"method": "push/event", "params": second, "leave": true});
    owner_agent.call("git__mcpl_ask", asked).await.result();
    wait_until("it is written down", DEADLINE, async || {
        std::fs::metadata(&journal).unwrap().len() > before
    })
    .await;
    let folder = kernel.end(Signal::SIGKILL, DEADLINE).await;
    let kernel = Kernel::again(folder).await;
    kernel.connected(&["git"]).await;
    let mut owner_agent = owner(&kernel).await;
    let mut agent = host(&kernel).await;
    agent.answers("push/event", json!({"accepted": true}));
    assert_eq!(push_result(&mut owner_agent, "git", &first).await, said);
    let unknown = push_result(&mut owner_agent, "git", &second).await;
    assert_eq!(unknown["accepted"], false, "{unknown}");
    assert!(
        unknown["reason"].as_str().unwrap().contains("not known"),
        "{unknown}"
    );
    agent.request("ping", json!({})).await.result();
    assert!(agent.asked().is_empty(), "{:?}", agent.asked());
}

/// MCPL-084, MCPL-044: a host that does not answer in time is told once more, with the same id; one that does not want
/// the set is not asked; one that refuses leaves it to the next.
#[tokio::test]
async fn event_goes_to_the_next_host_when_one_declines_it() {
    let entry = pushing("git", &json!({"a": push_set("x")}));
    let rules = "[mcpl.servers.git]\nenable = [\"*\"]\n[mcpl.push]\nagent_timeout_ms = 300\n";
    let kernel = Kernel::start(&format!("{entry}{rules}")).await;
    kernel.connected(&["git"]).await;
    let mut owner = owner(&kernel).await;
    let mut first = host(&kernel).await;
    first.answers("push/event", json!({"accepted": false, "reason": "not me"}));
    let mut second = host(&kernel).await;
    second.answers("push/event", json!({"accepted": true}));
    let both = async |owner: &mut Agent, first: &mut Agent, second: &mut Agent, id: &str| {
        let serve = async |agent: &mut Agent| loop {
            let _ = agent.request("ping", json!({})).await;
        };
        let event = event("a", id, "x");
        tokio::select! {
            said = push(owner, "git", &event) => said["result"].clone(),
            () = serve(first) => unreachable!(),
            () = serve(second) => unreachable!(),
        }
    };
    let said = both(&mut owner, &mut first, &mut second, "e1").await;
    assert_eq!(said, json!({"accepted": true}));
    assert_eq!((first.asked().len(), second.asked().len()), (1, 1));
    second
        .notify("featureSets/update", json!({"disabled": ["git.a"]}))
        .await;
    second.request("ping", json!({})).await.result();
    let said = both(&mut owner, &mut first, &mut second, "e2").await;
    assert_eq!(said, json!({"accepted": false, "reason": "not me"}));
    assert_eq!((first.asked().len(), second.asked().len()), (2, 1));

    // The first is silent: nothing of it is looked at until the answer is there.
    let said = push(&mut owner, "git", &event("a", "e3", "x")).await["result"].clone();
    assert_eq!(said["accepted"], false);
    assert!(
        said["reason"].as_str().unwrap().contains("in time"),
        "{said}"
    );
    first.request("ping", json!({})).await.result();
    let ids = first
        .asked()
        .iter()
        .map(|asked| asked["params"]["eventId"].clone());
    assert_eq!(
        ids.collect::<Vec<_>>(),
        ["git:e1", "git:e2", "git:e3", "git:e3"]
    );
}
