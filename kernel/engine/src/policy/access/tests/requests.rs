//! Bounds of requests, and the codes of their refusals.

use super::*;
use crate::policy::grants::IDS_MAX;

fn standing_entries(count: usize) -> Grants {
    let mut grants = Grants::default();
    for n in 0..count {
        let mut id = [0xee; 16];
        id[..8].copy_from_slice(&(n as u64).to_be_bytes());
        let entry = Grant {
            id: GrantId(id),
            subject: Subject::Agent(issuer(1).agent(AgentId::new("a"))),
            resource: GrantResource::Server(at("files")),
            permission: Permission::Allow,
            not_after_ms: None,
            told_by: None,
            justification: None,
            replaces: Vec::new(),
            when: None,
        };
        write(&mut grants, 1, GrantChange::Grant(entry));
    }
    grants
}

fn asked(grants: &Grants, request: &words::Grant) -> Result<Vec<GrantChange>, GrantRequestError> {
    grant(
        request,
        &operator(),
        &nas(),
        grants,
        &authority(),
        id(0xff),
        NOW,
    )
}

/// One operation replaces so many entries and no more; a revoke takes as many operations as it needs.
#[test]
fn one_step_replaces_as_many_entries_as_an_operation_names() {
    let new = request(None, Permission::Deny);
    let most = standing_entries(IDS_MAX);
    let changes = asked(&most, &new).unwrap();
    let [GrantChange::Grant(entry)] = &changes[..] else {
        panic!("one grant that replaces the others");
    };
    assert_eq!(entry.replaces.len(), IDS_MAX);
    let more = standing_entries(IDS_MAX + 1);
    assert_eq!(asked(&more, &new), Err(GrantRequestError::TooMany));
    let changes = revoke(&revoking(None), &operator(), &nas(), &more, &authority()).unwrap();
    let sizes: Vec<usize> = changes.iter().map(|it| it.revoked_ids().len()).collect();
    assert_eq!(sizes, [IDS_MAX, 1]);
}

/// An entry that each build can read takes the place of another one in the same operation, also of an agent elsewhere.
#[test]
fn plain_entry_of_a_foreign_agent_replaces_in_one_step() {
    let mut new = request(None, Permission::Allow);
    new.agent_id = AgentId::from_node_agent(&issuer(2).agent(AgentId::new("a"))).to_string();
    let mut grants = Grants::default();
    for change in asked(&grants, &new).unwrap() {
        write(&mut grants, 1, change);
    }
    new.permission = Permission::Deny;
    let changes = grant(
        &new,
        &operator(),
        &nas(),
        &grants,
        &authority(),
        id(0xfe),
        NOW,
    )
    .unwrap();
    let [GrantChange::Grant(entry)] = &changes[..] else {
        panic!("one operation: {changes:?}");
    };
    assert_eq!(entry.replaces.len(), 1);
}

/// Each pattern costs every call of those it is about: a new one is refused, one in the place of another is not.
#[test]
fn patterns_are_bounded() {
    let all = AgentId::pattern_for_node(issuer(2));
    let pattern = |n: usize| {
        let mut asked = request(Some(&format!("t{n:03}*")), Permission::Allow);
        asked.agent_id = all.to_string();
        asked
    };
    let mut grants = Grants::default();
    for n in 0..PATTERNS_MAX {
        let changes = grant(
            &pattern(n),
            &operator(),
            &nas(),
            &grants,
            &authority(),
            GrantId([u8::try_from(n).unwrap(); 16]),
            NOW,
        );
        for change in changes.unwrap() {
            write(&mut grants, 1, change);
        }
    }
    assert_eq!(
        asked(&grants, &pattern(999)),
        Err(GrantRequestError::TooManyPatterns)
    );
    let again = asked(&grants, &pattern(7)).unwrap();
    assert!(matches!(
        &again[..],
        [GrantChange::Revoke(_), GrantChange::Grant(_)]
    ));
    assert!(
        asked(&grants, &request(None, Permission::Allow)).is_ok(),
        "it is no pattern"
    );
    let mut gone = revoking(Some("t007*"));
    gone.agent_id = all.to_string();
    assert_eq!(take(&mut grants, &gone), 1);
    assert!(asked(&grants, &pattern(999)).is_ok());
}

/// This node's own agents have entries for servers and single tools, whichever node these are of.
#[test]
fn several_tools_are_granted_to_agents_of_other_nodes_only() {
    let named = |who: &AgentId, on: &str, tool: &str| {
        let mut request = request(Some(tool), Permission::Deny);
        request.agent_id = who.to_string();
        request.server_id = on.into();
        asked(&Grants::default(), &request)
    };
    let own = AgentId::new("a");
    let foreign = AgentId::from_node_agent(&issuer(3).agent(AgentId::new("a")));
    let here = AgentId::new(AgentId::ALL);
    assert_eq!(
        named(&own, "files", "r*"),
        Err(GrantRequestError::LocalPattern("r*".into()))
    );
    assert!(named(&own, "files", "read").is_ok());
    assert!(named(&own, "nas/files", "r*").is_ok() && named(&foreign, "files", "r*").is_ok());
    assert_eq!(
        named(&here, "files", "read"),
        Err(GrantRequestError::AllLocalAgents)
    );
    assert!(named(&here, "nas/files", "read").is_ok());
    let changes = named(&foreign, "files", "r*").unwrap();
    let [GrantChange::Grant(entry)] = &changes[..] else {
        panic!("{changes:?}");
    };
    assert!(matches!(entry.resource, GrantResource::Tools(..)));
    let changes = named(&foreign, "files", "*").unwrap();
    let [GrantChange::Grant(entry)] = &changes[..] else {
        panic!("{changes:?}");
    };
    assert_eq!(entry.resource, GrantResource::Server(at("files")));
}

/// A revoke of one name says which patterns go on allowing it: those that count, and mean all of it.
#[test]
fn a_revoke_names_the_patterns_that_go_on() {
    let all = AgentId::pattern_for_node(issuer(2));
    let everywhere = AgentId::new("alice").pattern_for_all_nodes();
    let alice = AgentId::from_node_agent(&issuer(2).agent(AgentId::new("alice")));
    let mut grants = Grants::default();
    for (n, who, on, tool, permission) in [
        (1, &all, "files", Some("r*"), Permission::Allow),
        (2, &everywhere, "files", None, Permission::Deny),
        (3, &everywhere, "git", None, Permission::Allow),
        (4, &alice, "files", Some("read"), Permission::Allow),
        (5, &all, "files", Some("w*"), Permission::Allow),
    ] {
        let mut asked = request(tool, permission);
        asked.agent_id = who.to_string();
        asked.server_id = on.into();
        give(&mut grants, n, &asked);
    }
    let goes_on = |grants: &Grants, who: &AgentId, tool: Option<&str>| {
        let mut request = revoking(tool);
        request.agent_id = who.to_string();
        let found = remaining_pattern_grants(&request, &nas(), grants, &authority()).unwrap();
        found.iter().map(|it| it.grant.id).collect::<Vec<_>>()
    };
    assert_eq!(goes_on(&grants, &alice, Some("read")), [id(1)]);
    assert_eq!(goes_on(&grants, &alice, None), []);
    assert_eq!(
        goes_on(&grants, &all, Some("r*")),
        [],
        "it is the entry itself"
    );
    assert_eq!(goes_on(&grants, &all, Some("re*")), [id(1)]);
    let mut gone = revoking(Some("r*"));
    gone.agent_id = all.to_string();
    take(&mut grants, &gone);
    assert_eq!(goes_on(&grants, &alice, Some("read")), [], "it was revoked");
}
