use super::*;
use crate::policy::SetPattern;
use mgp_protocol::mcpl::error::{NOT_ENABLED, UNKNOWN_SET};
use mgp_protocol::mcpl::feature_sets::DeclaredSets;

const MEMORY: &str = r#"{
  "memory.retrieval":{"description":"r","uses":["contextHooks.beforeInference"]},
  "memory.extraction":{"description":"e","uses":["contextHooks.afterInference"]},
  "memory.consolidation":{"description":"c","uses":["inferenceRequest"]},
  "memory.proactive":{"description":"p","uses":["pushEvents"]}}"#;

fn capabilities(sets: &str) -> ServerCapabilities {
    ServerCapabilities {
        version: "0.4".into(),
        features: McplFeatures {
            push_events: true,
            before_inference: true,
            inference_request: true,
            ..McplFeatures::default()
        },
        manifest: None,
        sets: DeclaredSets::parse(sets),
    }
}

fn enabling(patterns: &[&str]) -> McplServerRules {
    let all = patterns.iter().map(|change| SetPattern::parse(change));
    McplServerRules {
        enable: all.collect::<Result<_, _>>().unwrap(),
        ..McplServerRules::default()
    }
}

/// MCPL-041, MCPL-042, MCPL-043, MCPL-085: the error of each set, and whether enabling it would help.
#[test]
fn a_set_is_admitted_to_what_it_uses_and_no_more() {
    let rules = enabling(&["memory.proactive", "memory.extraction"]);
    let sets = ServerSets::new(
        &capabilities(MEMORY),
        Some(&rules),
        None,
        &mut BTreeMap::new(),
    );
    assert!(
        sets.find_usable_set("memory.proactive", Capability::PushEvents)
            .is_ok()
    );
    let refused = |set: &str, uses| {
        let error = sets.find_usable_set(set, uses).unwrap_err();
        (
            error.code,
            error
                .data
                .unwrap_or_default()
                .contains(r#""canEnable":true"#),
        )
    };
    assert_eq!(
        refused("memory.consolidation", Capability::InferenceRequest),
        (NOT_ENABLED, true)
    );
    assert_eq!(
        refused("memory.proactive", Capability::InferenceRequest),
        (NOT_ENABLED, false)
    );
    // The server declares no hook after an inference, whatever its set says.
    assert_eq!(
        refused("memory.extraction", Capability::AfterInference),
        (NOT_ENABLED, false)
    );
    for unknown in [
        "memory",
        "memory.*",
        "Memory.proactive",
        "",
        "memory.proactive ",
    ] {
        assert_eq!(
            refused(unknown, Capability::PushEvents),
            (UNKNOWN_SET, false),
            "{unknown:?}"
        );
    }
    assert_eq!(sets.sets_using(Capability::PushEvents).count(), 1);
    assert_eq!(sets.sets_using(Capability::AfterInference).count(), 0);
}

/// MCPL-030, MCPL-031, MCPL-036, MCPL-047.
#[test]
fn an_update_names_every_set_once() {
    let mut rules = enabling(&["memory.*"]);
    let scope = ScopeRules {
        whitelist: vec![crate::scopes::ScopePattern::parse("/project/**").unwrap()],
        ..ScopeRules::default()
    };
    rules.scopes.insert("files.edit".into(), scope);
    let sets = format!(
        r#"{},"files.edit":{{"description":"f","uses":["tools"],"scoped":true}},"files.view":{{"description":"f","uses":["tools"],"scoped":true}},"other":{{"description":"o","uses":["pushEvents"]}}}}"#,
        MEMORY.trim_end_matches('}').to_owned() + "}"
    );
    let sets = ServerSets::new(
        &capabilities(&sets),
        Some(&rules),
        None,
        &mut BTreeMap::new(),
    );
    let update = serde_json::to_string(&sets.update()).unwrap();
    assert_eq!(
        update,
        r#"{"enabled":["files.edit","files.view","memory.consolidation","memory.extraction","memory.proactive","memory.retrieval"],"disabled":["other"],"scopes":{"files.edit":{"whitelist":["/project/**"]},"files.view":{}}}"#
    );
}

/// MCPL-045: new sets follow the policy, removed ones are unknown, and no number of changes grows without bound.
#[test]
fn changes_follow_the_policy() {
    let rules = enabling(&["memory.semantic"]);
    let mut sets = ServerSets::new(
        &capabilities(MEMORY),
        Some(&rules),
        None,
        &mut BTreeMap::new(),
    );
    let added = DeclaredSets::parse(
        r#"{"memory.semantic":{"description":"s","uses":["contextHooks.beforeInference"]},"memory.other":{"description":"s","uses":["contextHooks.beforeInference"]}}"#,
    );
    let left_out = sets.change(added.sets, ["memory.proactive", "never"].into_iter());
    sets.reevaluate(Some(&rules), None, &mut BTreeMap::new());
    assert!(left_out.is_empty());
    assert!(
        sets.find_usable_set("memory.semantic", Capability::BeforeInference)
            .is_ok()
    );
    assert!(
        sets.find_usable_set("memory.other", Capability::BeforeInference)
            .is_err()
    );
    let removed = sets.find_usable_set("memory.proactive", Capability::PushEvents);
    assert_eq!(removed.unwrap_err().code, UNKNOWN_SET);
    for n in 0..10_000 {
        let change = format!(r#"{{"n{n}":{{"description":"d","uses":["pushEvents"]}}}}"#);
        sets.change(
            DeclaredSets::parse(&change).sets,
            std::iter::empty::<&str>(),
        );
    }
    assert_eq!(sets.sets.len(), SETS_MAX);
    // A known set may change its declaration, and is decided again.
    let again =
        DeclaredSets::parse(r#"{"memory.semantic":{"description":"x","uses":["pushEvents"]}}"#);
    assert!(
        sets.change(again.sets, std::iter::empty::<&str>())
            .is_empty()
    );
    assert!(
        sets.find_usable_set("memory.semantic", Capability::BeforeInference)
            .is_err()
    );
}

/// A million changes in a second are 32, and later one more for each second.
#[test]
fn changes_are_bounded_in_time() {
    let mut budget = ChangeBudget::new(0);
    let taken = (0..1_000_000).filter(|n| budget.try_take(n / 1001));
    assert_eq!(taken.count(), CHANGES_MAX as usize);
    assert!(budget.try_take(2 * CHANGE_EVERY_MS) && budget.try_take(2 * CHANGE_EVERY_MS));
    assert!(!budget.try_take(2 * CHANGE_EVERY_MS + 1));
}

/// A tool's set: as configured, as defined, or the only possible one.
#[test]
fn a_tool_belongs_to_the_set_that_is_meant() {
    let scoped = r#"{"files.edit":{"description":"f","uses":["tools"],"scoped":true}}"#;
    let change = ServerSets::new(&capabilities(scoped), None, None, &mut BTreeMap::new());
    assert!(matches!(
        change.set_of_tool("edit", None),
        ToolSet::Member("files.edit", _)
    ));
    assert!(matches!(
        change.set_of_tool("edit", Some("x")),
        ToolSet::Undeclared(_)
    ));
    let two = r#"{"files.edit":{"description":"f","uses":["tools"],"scoped":true},"files.read":{"description":"f","uses":["tools"]}}"#;
    let mut rules = McplServerRules::default();
    rules.tools.insert("edit".into(), "files.edit".into());
    let two = ServerSets::new(&capabilities(two), Some(&rules), None, &mut BTreeMap::new());
    assert!(matches!(
        two.set_of_tool("edit", Some("files.read")),
        ToolSet::Member("files.edit", _)
    ));
    assert!(matches!(
        two.set_of_tool("read", Some("files.read")),
        ToolSet::Member("files.read", _)
    ));
    assert_eq!(
        two.set_of_tool("other", None),
        ToolSet::Ambiguous(vec!["files.edit"])
    );
    assert_eq!(
        ServerSets::new(&capabilities(MEMORY), None, None, &mut BTreeMap::new())
            .set_of_tool("x", None),
        ToolSet::None
    );
    let off = McplServerRules {
        disable: vec![SetPattern::parse("*").unwrap()],
        ..McplServerRules::default()
    };
    let off = ServerSets::new(
        &capabilities(scoped),
        Some(&off),
        None,
        &mut BTreeMap::new(),
    );
    for defined in [None, Some("files.edit")] {
        assert_eq!(
            off.set_of_tool("edit", defined),
            ToolSet::Disabled("files.edit")
        );
    }
}

/// A server that speaks no MCPL has no sets; one that does is found by what its sets may.
#[test]
fn sets_are_found_by_server() {
    let rules = enabling(&["memory.proactive"]);
    let sets = ServerSets::new(
        &capabilities(MEMORY),
        Some(&rules),
        None,
        &mut BTreeMap::new(),
    );
    let (here, other) = (ServerId::new("here"), ServerId::new("other"));
    let all = FeatureSets {
        servers: [(here.clone(), Arc::new(sets))].into(),
    };
    let code = |server: &ServerId, set: &str| {
        let found = all.find_usable_set(server, set, Capability::PushEvents);
        found.map_err(|error| error.code).map(|_| ())
    };
    assert!(all.get(&here).is_some_and(|sets| sets.sets.len() == 4) && all.get(&other).is_none());
    assert_eq!(code(&here, "memory.proactive"), Ok(()));
    assert_eq!(code(&other, "memory.proactive"), Err(UNKNOWN_SET));
    let using = |uses| {
        all.servers_using(uses)
            .map(|(id, _)| id)
            .collect::<Vec<_>>()
    };
    assert_eq!(using(Capability::PushEvents), [&here]);
    assert!(
        using(Capability::BeforeInference).is_empty(),
        "of no enabled set"
    );
}

/// MCPL-157: an agent can only disable sets that it can see.
#[test]
fn an_agent_says_what_it_wants() {
    let mut wants = AgentSets::default();
    let known = ["mem.memory.a", "mem.memory.b", "fs.files"];
    let update: Update = serde_json::from_str(r#"{"enabled":["mem.memory.b","never"],"disabled":["mem.*"],"scopes":{"fs.files":{"whitelist":["/a/**"]},"never":{}}}"#).unwrap();
    wants.update(&update, known.iter().copied());
    assert!(!wants.allows("mem.memory.a") && !wants.allows("mem.memory.b"));
    assert!(wants.allows("fs.files") && wants.scopes("fs.files").is_some());
    assert!(wants.scopes("never").is_none());
    let back: Update = serde_json::from_str(r#"{"enabled":["mem.memory.b"]}"#).unwrap();
    wants.update(&back, known.iter().copied());
    assert!(wants.allows("mem.memory.b"));
}

/// What an agent wants is remembered for so many sets, and what it wants of known ones may change.
#[test]
fn choices_of_an_agent_are_bounded() {
    let names: Vec<String> = (0..4_097).map(|n| format!("s{n:04}")).collect();
    let known = || names.iter().map(String::as_str);
    let scopes = names
        .iter()
        .map(|name| (name.clone(), ScopePatterns::default()));
    let off = Update {
        enabled: Vec::new(),
        disabled: vec!["*".to_owned()],
        scopes: scopes.collect(),
    };
    let mut wants = AgentSets::default();
    wants.update(&off, known());
    assert!(!wants.allows("s4095") && wants.allows("s4096"));
    assert!(wants.scopes("s4095").is_some() && wants.scopes("s4096").is_none());
    let on = Update {
        enabled: vec!["s0007".to_owned()],
        ..Update::default()
    };
    wants.update(&on, known());
    assert!(wants.allows("s0007"));
}

/// A host of 0.5 grants nothing before its policy, then what the policy says, and nothing after one that cannot be read;
/// a host of 0.4 has no grant.
#[test]
fn a_host_that_grants_is_closed_until_it_does() {
    let set = |uses: &[Capability]| FeatureSet {
        description: "d".into(),
        uses: uses.iter().copied().collect(),
        scoped: false,
        rollback: false,
    };
    let announced = [
        ("a".to_owned(), set(&[Capability::PushEvents])),
        ("b".to_owned(), set(&[Capability::PushEvents])),
        (
            "c".to_owned(),
            set(&[Capability::PushEvents, Capability::Tools]),
        ),
    ];
    let opened = |host: &AgentSets| ["a", "b", "c"].map(|name| host.allows(name));
    let granted = |host: &AgentSets| {
        [Capability::PushEvents, Capability::Tools].map(|uses| host.grants(uses))
    };
    assert_eq!(opened(&AgentSets::default()), [true; 3]);
    assert_eq!(granted(&AgentSets::default()), [true; 2]);
    let mut host = AgentSets::closed();
    assert_eq!((opened(&host), granted(&host)), ([false; 3], [false; 2]));
    let policy = r#"{"effectiveCapabilities":["pushEvents"],"disabled":["b"]}"#;
    let policy = ReceivedGrant::parse(policy).unwrap();
    let lacking = host.apply_grant(&policy, announced.iter().map(|(name, set)| (name, set)));
    let tools = BTreeSet::from([Capability::Tools]);
    assert_eq!(lacking, [UnavailableFeature::new("c".to_owned(), tools)]);
    assert_eq!(
        (opened(&host), granted(&host)),
        ([true, false, false], [true, false])
    );
    host.revoke();
    assert_eq!((opened(&host), granted(&host)), ([false; 3], [false; 2]));
}

/// A declaration is effective as far as it is approved; using less takes effect at once.
#[test]
fn an_enabled_set_grows_only_by_approval() {
    let set = |uses: &[Capability], scoped: bool| FeatureSet {
        description: "d".into(),
        uses: uses.iter().copied().collect(),
        scoped,
        rollback: false,
    };
    let rules = enabling(&["a"]);
    let mut approved = ApprovedSets::new();
    let mut sets = ServerSets::new(&capabilities("{}"), Some(&rules), None, &mut approved);
    let mut declare = |declared: FeatureSet, rules: &McplServerRules, approved: &mut _| {
        sets.change(
            [("a".to_owned(), declared)].into(),
            std::iter::empty::<&str>(),
        );
        sets.reevaluate(Some(rules), None, approved);
        sets.sets["a"].clone()
    };
    let push = [Capability::PushEvents];
    let both = [Capability::PushEvents, Capability::BeforeInference];
    let first = declare(set(&push, true), &rules, &mut approved);
    assert!(first.enabled && first.approved.is_none());
    for grown in [
        set(&both, true),
        set(&push, false),
        FeatureSet {
            description: "e".into(),
            ..set(&push, true)
        },
        FeatureSet {
            rollback: true,
            ..set(&push, true)
        },
    ] {
        let declared = declare(grown, &rules, &mut approved);
        assert_eq!(declared.approved, Some(set(&push, true)));
        assert_eq!((declared.enabled, &declared.set), (true, &set(&push, true)));
    }
    let less = declare(set(&[], true), &rules, &mut approved);
    assert!(less.set.uses.is_empty() && less.approved.is_none());
    // Another capability is not effective, and the approval is kept.
    let other = declare(
        set(&[Capability::Tools], false),
        &McplServerRules::default(),
        &mut approved,
    );
    assert!(!other.enabled && other.approved.is_some());
    assert!(
        declare(set(&both, true), &rules, &mut approved)
            .set
            .uses
            .len()
            == 1
    );
    // Disabling and enabling the set approves the new declaration.
    let off = McplServerRules {
        disable: vec![SetPattern::parse("a").unwrap()],
        ..McplServerRules::default()
    };
    assert!(!declare(set(&both, true), &off, &mut approved).enabled);
    let again = declare(set(&both, true), &rules, &mut approved);
    assert_eq!((again.set, again.approved), (set(&both, true), None));
}

/// Configured scopes of a set hold, whatever its server declares.
#[test]
fn configured_scopes_hold_for_a_set_that_declares_none() {
    let mut rules = enabling(&["a"]);
    rules.scopes.insert("a".into(), ScopeRules::default());
    let sets = capabilities(r#"{"a":{"description":"d","uses":["tools"]}}"#);
    let sets = ServerSets::new(&sets, Some(&rules), None, &mut BTreeMap::new());
    assert!(sets.sets["a"].set.scoped);
}

/// A server that names new sets again and again gets no more of them enabled than are remembered.
#[test]
fn sets_beyond_those_that_are_remembered_stay_disabled() {
    let rules = enabling(&["set.*"]);
    let mut sets = ServerSets::new(
        &capabilities("{}"),
        Some(&rules),
        None,
        &mut BTreeMap::new(),
    );
    let set = FeatureSet {
        description: "d".into(),
        uses: [Capability::PushEvents].into(),
        scoped: false,
        rollback: false,
    };
    let mut approved: ApprovedSets = (0..1023)
        .map(|n| (format!("set.old{n}"), set.clone()))
        .collect();
    let new = ["set.x", "set.y"].map(|name| (name.to_owned(), set.clone()));
    sets.change(new.into(), std::iter::empty::<&str>());
    sets.reevaluate(Some(&rules), None, &mut approved);
    let enabled = ["set.x", "set.y"].map(|name| sets.sets[name].enabled);
    assert_eq!((enabled, approved.len()), ([true, false], 1024));
    // A known one is enabled all the same.
    let known = [("set.old7".to_owned(), set)].into();
    sets.change(known, std::iter::empty::<&str>());
    sets.reevaluate(Some(&rules), None, &mut approved);
    assert!(sets.sets["set.old7"].enabled && sets.sets["set.x"].enabled);
}
