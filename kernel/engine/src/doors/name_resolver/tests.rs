use mgp_protocol::ids::NodeId;

use super::*;

/// `agent.claude` with a token; a server that lists two tools, one that lists what agents are shown
/// with a hash, and one that has listed nothing.
fn known() -> NameResolver {
    let agents = ["agent.local", "agent.claude", "agent.auth0%7C7"];
    let lists = |tools: &[&str]| Some(tools.iter().map(|tool| Arc::from(*tool)).collect());
    let servers = [
        ("files", lists(&["write_file", "read_file"])),
        ("tool.sh", lists(&["run", "günther"])),
        ("slow", None),
        ("fetch", lists(&["fetch"])),
    ];
    NameResolver {
        agents: agents.map(AgentId::new).into(),
        servers: servers.map(|(id, tools)| (ServerId::new(id), tools)).into(),
        ..NameResolver::default()
    }
}

fn nas() -> NodeId {
    NodeId([7; 32])
}

/// The same at a node called `desk`, beside a node called `nas` that shares `demo` with it.
fn in_a_cluster() -> NameResolver {
    let mut known = known();
    let name = |name| NodeName::parse(name).unwrap();
    known
        .nodes
        .assign(nas(), &name("nas"), known.servers.keys());
    known.local_name = Some(name("desk"));
    let tools = ["time", "fetch"].map(Arc::from);
    let demo = ServerId::new_remote("nas", &ServerId::new("demo"));
    known.servers.insert(demo, Some(tools.into()));
    known
}

fn read(typed: &str) -> Result<String, String> {
    let meant = known()
        .resolve_server_or_tool(typed)
        .and_then(ResolvedName::require_existing);
    meant
        .map(|meant| meant.value.canonical_name())
        .map_err(|why| why.to_string())
}

/// whichever way a tool is spelled, it is the same one.
#[test]
fn every_form_of_a_tool_name_is_resolved() {
    for typed in ["files:write_file", "files/write_file", "files__write_file"] {
        assert_eq!(read(typed).as_deref(), Ok("files:write_file"), "{typed}");
    }
    let closed = visible_name(&ServerId::new("tool.sh"), "run");
    assert_eq!(read(&closed).as_deref(), Ok("tool.sh:run"));
    assert_eq!(read("tool.sh:günther").as_deref(), Ok("tool.sh:günther"));
    assert_eq!(read("files").as_deref(), Ok("files"));
    // Its tool of the same name does not stand in its way.
    assert_eq!(read("fetch").as_deref(), Ok("fetch"));
    assert_eq!(
        known().resolve_agent("claude"),
        known().resolve_agent("agent.claude")
    );
}

/// where a tool is meant its bare name will do, as long as it is one server's.
#[test]
fn a_bare_name_is_resolved_if_only_one_server_has_it() {
    let mut known = known();
    let tool = |known: &NameResolver, typed: &str| {
        known
            .resolve_tool(typed)
            .map(|meant| meant.value.canonical_name())
    };
    for typed in ["write_file", "files/write_file", "files__write_file"] {
        assert_eq!(tool(&known, typed).as_deref(), Ok("files:write_file"));
    }
    assert_eq!(tool(&known, "fetch").as_deref(), Ok("fetch:fetch"));
    let said = tool(&known, "wriet_file").unwrap_err().to_string();
    assert!(said.contains("did you mean files:write_file?"), "{said}");
    let other = ServerId::new("other");
    known.servers.insert(other, Some(["fetch".into()].into()));
    let said = tool(&known, "fetch").unwrap_err().to_string();
    assert!(said.contains("fetch:fetch and other:fetch"), "{said}");
}

/// What is not there is refused with what is nearest.
#[test]
fn an_unknown_name_is_rejected_with_a_suggestion() {
    for (typed, nearest) in [
        ("filez", "files"),
        ("Files", "files"),
        ("filez/write_file", "files"),
        ("files/wriet_file", "files:write_file"),
        ("files__wriet_file", "files:write_file"),
        ("filez__write_file", "files:write_file"),
        ("write_file", "files:write_file"),
        ("slow:write_fil", "not listed"),
    ] {
        let said = match read(typed) {
            Err(said) => said,
            // It is accepted, with the uncertainty.
            Ok(_) => known()
                .resolve_server_or_tool(typed)
                .unwrap()
                .unknown
                .unwrap()
                .to_string(),
        };
        assert!(said.contains(nearest), "{typed}: {said}");
    }
    for typed in ["agent.claud", "claud", "agent.Claude"] {
        let agent = known()
            .resolve_agent(typed)
            .and_then(ResolvedName::require_existing);
        let said = agent.unwrap_err().to_string();
        assert!(said.contains("did you mean agent.claude?"), "{said}");
    }
    assert!(
        known()
            .resolve_agent("agent.auth0%7C7")
            .unwrap()
            .unknown
            .is_none()
    );
}

/// What is still to come can be named, by what cannot be mistaken for another name.
#[test]
fn a_future_name_is_resolved_as_typed() {
    let come = |typed: &str| {
        known()
            .resolve_server_or_tool(typed)
            .map(|meant| meant.value.canonical_name())
    };
    assert_eq!(come("later").as_deref(), Ok("later"));
    assert_eq!(come("later/of/all").as_deref(), Ok("later:of/all"));
    assert_eq!(come("files:later").as_deref(), Ok("files:later"));
    for bad in [
        "",
        "/x",
        "files/",
        "files:",
        "files ",
        "fіles",
        "files:wri\u{200b}te",
        "files:a b",
        "later__x",
        "files\u{1b}[2J",
    ] {
        let said = come(bad).unwrap_err().to_string();
        assert!(said.chars().all(|c| !c.is_control()), "{bad:?}: {said}");
    }
    assert!(come("fіles").unwrap_err().to_string().contains("U+0456"));
    for bad in [
        "",
        "agent.",
        "operator",
        "a b",
        "claude\u{200b}",
        "agent.claude\n",
    ] {
        assert!(known().resolve_agent(bad).is_err(), "{bad:?}");
    }
}

/// A name that could be two things is neither.
#[test]
fn an_ambiguous_name_is_rejected_with_both_meanings() {
    let mut known = known();
    known
        .servers
        .insert(ServerId::new("files__write_file"), None);
    let said = known
        .resolve_server_or_tool("files__write_file")
        .unwrap_err()
        .to_string();
    assert!(
        said.contains("files:write_file") && said.contains("--whole-server"),
        "{said}"
    );
    let whole = known.resolve_parts("files__write_file", None).unwrap();
    assert_eq!((whole.value.tool, whole.unknown), (None, None));
    // A server whose id only looks like another one's tool is itself.
    known.servers.insert(ServerId::new("files__copy"), None);
    let copy = known.resolve_server_or_tool("files__copy").unwrap();
    assert_eq!(copy.value.canonical_name(), "files__copy");
}

/// PRJ-008: what belongs to another node is named with the node.
#[test]
fn servers_and_tools_of_other_nodes_are_resolved_with_their_node() {
    let known = in_a_cluster();
    let read = |typed: &str| {
        let meant = known
            .resolve_server_or_tool(typed)
            .and_then(ResolvedName::require_existing);
        meant.map(|meant| meant.value.canonical_name())
    };
    let digits = nas().to_string();
    let by_id = format!("{}/demo", &digits[..12]);
    for typed in ["nas/demo", &*by_id] {
        assert_eq!(read(typed).as_deref(), Ok("nas/demo"), "{typed}");
    }
    for typed in ["nas/demo:time", "nas/demo/time", "nas__demo__time"] {
        assert_eq!(read(typed).as_deref(), Ok("nas/demo:time"), "{typed}");
    }
    // One's own node can be named, too.
    assert_eq!(read("desk/files").as_deref(), Ok("files"));
    assert_eq!(
        read("desk/files:write_file").as_deref(),
        Ok("files:write_file")
    );
    let whole = known.resolve_server("nas/demo").unwrap();
    assert_eq!((whole.value.as_str(), whole.unknown), ("nas/demo", None));
    for (typed, words) in [
        ("naz/demo", "did you mean nas/demo?"),
        ("naz/demo:time", "did you mean nas/demo:time?"),
        ("nas/dmeo", "did you mean nas/demo?"),
        ("nas/demo:tiem", "did you mean nas/demo:time?"),
        ("nas__demo__tiem", "did you mean nas/demo:time?"),
        ("nas/attic", "`mgp cluster status`"),
    ] {
        let said = read(typed).unwrap_err().to_string();
        assert!(said.contains(words), "{typed}: {said}");
    }
    let said = known.resolve_server("naz/demo").unwrap_err().to_string();
    assert!(said.contains("there are nas (did you mean nas?)"), "{said}");
}

/// PRJ-008: what was typed before a node came means the same when it is there.
#[test]
fn a_new_node_changes_no_meaning() {
    let mut known = in_a_cluster();
    let tool = |known: &NameResolver| {
        known
            .resolve_tool("fetch")
            .map(|meant| meant.value.canonical_name())
    };
    assert_eq!(tool(&known).as_deref(), Ok("fetch:fetch"));
    known.servers.remove("fetch");
    assert_eq!(tool(&known).as_deref(), Ok("nas/demo:fetch"));
    // A server of the node's name, added later: what is typed is the server.
    let own = ["demo"].map(Arc::from);
    known.servers.insert(ServerId::new("nas"), Some(own.into()));
    let read = known
        .resolve_server_or_tool("nas/demo")
        .and_then(ResolvedName::require_existing)
        .unwrap();
    assert_eq!(read.value.canonical_name(), "nas:demo");
}

/// PRJ-008: agents of other nodes are named with their home; whether they are there is known there only.
#[test]
fn agents_of_other_nodes_are_resolved_with_their_node() {
    let mut known = in_a_cluster();
    let alice = AgentId::from_node_agent(&nas().agent(AgentId::new("agent.alice")));
    for typed in ["alice@nas", "agent.alice@nas"] {
        let meant = known
            .resolve_agent(typed)
            .and_then(ResolvedName::require_existing)
            .unwrap();
        assert_eq!(meant.value, alice);
        let doubt = meant.unknown.unwrap().to_string();
        assert!(doubt.contains("only nas itself knows"), "{doubt}");
    }
    known.agents.insert(alice.clone());
    for typed in ["alice@nas", alice.as_str()] {
        let meant = known.resolve_agent(typed).unwrap();
        assert_eq!((meant.value, meant.unknown), (alice.clone(), None));
    }
    // Who has no name of its own is somebody at every node.
    assert!(known.resolve_agent("local@nas").is_ok());
    assert_eq!(
        known.resolve_agent("claude@desk"),
        known.resolve_agent("claude")
    );
    for (typed, words) in [
        ("alice@naz", "did you mean nas?"),
        ("al ice@nas", "' '"),
        ("operator@nas", "kernel's own"),
        ("@nas", "empty"),
        ("alice@", "no other node is called"),
    ] {
        let said = known.resolve_agent(typed).unwrap_err().to_string();
        assert!(said.contains(words), "{typed}: {said}");
    }
}

/// What a node that is away shared is known, and since when it is away: never that it shares nothing.
#[test]
fn a_server_of_an_unavailable_node_is_not_reported_as_unshared() {
    let mut known = in_a_cluster();
    let demo = ServerId::new_remote("nas", &ServerId::new("demo"));
    known.servers.remove(&demo);
    let why = |known: &NameResolver, typed: &str| {
        let meant = known
            .resolve_server_or_tool(typed)
            .and_then(ResolvedName::require_existing);
        meant.unwrap_err().to_string()
    };
    assert!(why(&known, "nas/demo:time").contains("is not shared with this node"));
    let absence = UnavailableNode {
        heard_ms_ago: Some(42_000),
        servers: [ServerId::new("demo")].into(),
    };
    known.unavailable.insert(nas(), absence);
    for typed in ["nas/demo:time", "nas/demo"] {
        assert_eq!(
            why(&known, typed),
            "nas is away and was last heard 42 s ago: nas/demo is back when nas is linked again; \
             `mgp cluster status` shows why it is away"
        );
    }
    let other = why(&known, "nas/files");
    assert!(other.contains("it did not share nas/files then"), "{other}");
    known.unavailable.insert(nas(), UnavailableNode::default());
    let unknown = why(&known, "nas/demo");
    assert!(
        unknown.contains("whether it shares nas/demo is not known"),
        "{unknown}"
    );
}
