//! Push events (MCPL §9): what is taken, told once, answered again, and by whom.

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

/// A plain client reads the last events as a resource, and is told when there are more.
async fn read_as_a_resource(kernel: &Kernel, owner: &mut Agent) {
    let mut plain = kernel.http_agent(None);
    plain.initialize(LEGACY, "{}").await.result();
    let uri = "mgp://push/git/ci.alerts";
    let read = plain
        .request("resources/read", json!({"uri": uri}))
        .await
        .result();
    let last: Value = serde_json::from_str(read["contents"][0]["text"].as_str().unwrap()).unwrap();
    let ids: Vec<_> = last["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| &e["data"]["event_id"])
        .collect();
    assert_eq!(ids, ["evt_1"]);
    plain
        .request("resources/subscribe", json!({"uri": uri}))
        .await
        .result();
    push(owner, "git", &event("ci.alerts", "evt_2", "x")).await;
    assert_eq!(
        plain.hears("notifications/resources/updated").await["params"]["uri"],
        uri
    );
    let unknown = plain
        .request("resources/read", json!({"uri": "mgp://push/git/ci.off"}))
        .await;
    assert!(unknown.is_error(), "{}", unknown.frame);
}

/// What is missing or wrong is named; a set that may not push says so.
async fn what_is_no_event(owner: &mut Agent) {
    for member in ["featureSet", "eventId", "timestamp", "payload"] {
        let mut less = event("ci.alerts", "e", "x");
        less.as_object_mut().unwrap().remove(member);
        let error = push(owner, "git", &less).await["error"].clone();
        assert_eq!(error["code"], -32602, "{error}");
        assert!(
            error["message"].as_str().unwrap().contains(member),
            "{error}"
        );
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
        let mut bad = event("ci.alerts", "e", "x");
        *bad.pointer_mut(pointer).unwrap() = wrong;
        let error = push(owner, "git", &bad).await["error"].clone();
        assert_eq!(error["code"], -32602, "{pointer}: {error}");
        assert!(
            error["message"].as_str().unwrap().contains(named),
            "{error}"
        );
    }
    for (set, code) in [
        ("ci.off", -32001),
        ("ci.tools", -32001),
        ("ci.none", -32003),
        ("inbox", -32003),
    ] {
        let error = push(owner, "git", &event(set, "e", "x")).await["error"].clone();
        assert_eq!(
            (error["code"].as_i64(), &error["data"]["featureSet"]),
            (Some(code), &json!(set))
        );
    }
}

/// Something else under the same id is told apart; the same id of another server is another event.
async fn other_events_under_one_id(owner: &mut Agent, follower: &mut Agent) {
    let other = event("ci.alerts", "evt_1", "Something else");
    let said = push(owner, "git", &other).await;
    assert_eq!(said["result"]["accepted"], false, "{said}");
    assert!(
        said["result"]["reason"]
            .as_str()
            .unwrap()
            .contains("eventId"),
        "{said}"
    );
    let mut mail = event("inbox", "evt_1", "");
    mail["payload"]["content"] = json!("A plain string");
    assert_eq!(
        push_result(owner, "mail", &mail).await,
        json!({"accepted": true})
    );
    let heard = follower.hears(EVENT).await["params"].clone();
    assert_eq!(heard["channel"], "push.mail.inbox");
    assert_eq!(
        heard["data"]["content"],
        json!([{"type": "text", "text": "A plain string"}])
    );
}

/// A limit a minute, quiet hours, and a size: each with its reason.
async fn what_is_too_much(owner: &mut Agent, follower: &mut Agent) {
    let asked = follower.request("mgp/events/subscribe", json!({"channels": ["push.git.*"]}));
    asked.await.result();
    for n in 0..3 {
        let said = push(owner, "git", &event("ci.slow", &format!("s{n}"), "x")).await;
        let reason = said["result"]["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert_eq!(said["result"]["accepted"], n < 2, "{said}");
        assert_eq!(reason.contains("2 events a minute"), n == 2, "{said}");
    }
    for (set, text, why) in [
        ("ci.night", "x".to_owned(), "quiet hours"),
        ("ci.alerts", "x".repeat(70_000), "bytes"),
    ] {
        let said = push(owner, "git", &event(set, "q", &text)).await;
        assert_eq!(said["result"]["accepted"], false, "{said}");
        assert!(
            said["result"]["reason"].as_str().unwrap().contains(why),
            "{said}"
        );
    }
}

/// MCPL-011, MCPL-078..083, MCPL-085, MCPL-142, A-14, A-48: an event is checked, told once on the bus with all
/// it said, kept for who reads its resource, and refused with a reason where nobody takes it, it comes too often, or
/// at the wrong hour.
#[tokio::test]
async fn an_event_is_told_once_to_those_who_follow_its_channel() {
    let hour = |add: u64| {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        format!("{:02}:00", (now / 3600 + add) % 24)
    };
    let sets = json!({
        "ci.alerts": push_set("Builds that failed"), "ci.slow": push_set("a"), "ci.night": push_set("b"),
        "ci.off": push_set("c"), "ci.tools": {"description": "d", "uses": ["tools"]},
    });
    let rules = format!(
        "[mcpl.servers.git]\nenable = [\"ci.alerts\", \"ci.slow\", \"ci.night\", \"ci.tools\"]\n\
         [mcpl.servers.mail]\nenable = [\"*\"]\n\
         [tuning.mcpl.push]\nserver_per_minute = 0\n\
         [mcpl.push.sets.\"git.ci.slow\"]\nper_minute = 2\n\
         [mcpl.push.sets.\"git.ci.night\"]\nquiet_hours = \"{}-{} Z\"\n",
        hour(23),
        hour(2)
    );
    let mail = pushing("mail", &json!({"inbox": push_set("New mail")}));
    let kernel = Kernel::start(&format!("{}{mail}{rules}", pushing("git", &sets))).await;
    kernel.connected(&["git", "mail"]).await;
    let mut owner = owner(&kernel).await;

    what_is_no_event(&mut owner).await;

    // Nobody follows: refused with a reason, and not remembered.
    let first = event("ci.alerts", "evt_1", "New commit");
    let said = push(&mut owner, "git", &first).await;
    assert_eq!(said["result"]["accepted"], false, "{said}");
    assert!(
        said["result"]["reason"]
            .as_str()
            .unwrap()
            .contains("push.git.ci.alerts"),
        "{said}"
    );

    // MCPL-142: a resource that changes is none of this.
    let mut follower = follower(&kernel).await;
    let channels = [
        "push.git.ci.alerts",
        "push.mail.*",
        "push.git.ci.off",
        "push.nobody.x",
    ];
    let asked = follower.request("mgp/events/subscribe", json!({"channels": channels}));
    let asked = asked.await.result();
    assert_eq!(
        asked["subscribed"],
        json!(["push.git.ci.alerts", "push.mail.*"]),
        "{asked}"
    );
    assert_eq!(
        asked["unsupported"],
        json!(["push.git.ci.off", "push.nobody.x"])
    );
    let changed =
        json!({"method": "notifications/resources/updated", "params": {"uri": "test://x"}});
    owner.call("git__mcpl_tell", changed).await.result();

    // Told once, with all it said; a retry, also in another spelling, has the same answer.
    for _ in 0..2 {
        let said = push(&mut owner, "git", &first).await;
        assert_eq!(said["result"], json!({"accepted": true}), "{said}");
    }
    let mut again = first.clone();
    again["timestamp"] = json!("2026-01-23T11:00:00+01:00");
    assert_eq!(
        push_result(&mut owner, "git", &again).await,
        json!({"accepted": true})
    );
    let heard = follower.hears(EVENT).await["params"].clone();
    assert_eq!(heard["channel"], "push.git.ci.alerts");
    assert_eq!(heard["timestamp"], "2026-01-23T10:30:00Z");
    assert_eq!(heard["_mgp.server_id"], "git");
    assert_eq!(heard["data"]["event_id"], "evt_1");
    assert_eq!(heard["data"]["origin"], first["origin"]);
    assert_eq!(heard["data"]["content"], first["payload"]["content"]);

    other_events_under_one_id(&mut owner, &mut follower).await;

    what_is_too_much(&mut owner, &mut follower).await;

    read_as_a_resource(&kernel, &mut owner).await;
}

/// who may not use a server hears nothing of its events, nor that it has channels; from the moment it may not.
#[tokio::test]
async fn events_go_to_whom_the_server_is_open() {
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
async fn an_event_is_handed_to_a_host_once_whatever_happens() {
    let entry = pushing("git", &json!({"ci.alerts": push_set("x")}));
    let rules =
        "[mcpl.servers.git]\nenable = [\"*\"]\n[tuning.mcpl.push]\nagent_timeout_ms = 60000\n";
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
async fn hosts_are_asked_one_after_the_other() {
    let entry = pushing("git", &json!({"a": push_set("x")}));
    let rules =
        "[mcpl.servers.git]\nenable = [\"*\"]\n[tuning.mcpl.push]\nagent_timeout_ms = 300\n";
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
