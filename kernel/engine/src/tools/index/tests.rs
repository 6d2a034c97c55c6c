use std::collections::{BTreeMap, BTreeSet};

use mgp_protocol::mgp::discovery::security::RiskLevel;
use proptest::prelude::*;
use proptest::strategy::Strategy as Plans;
use serde_json::json;

use super::Strategy;
use super::*;

/// A tool in few words.
#[derive(Clone, Debug)]
struct Plan {
    name: String,
    description: String,
    category: &'static str,
    risk: RiskLevel,
}

fn plan(name: &str, description: &str) -> Plan {
    Plan {
        name: name.into(),
        description: description.into(),
        category: "filesystem/read",
        risk: RiskLevel::Moderate,
    }
}

fn draft(server: &str, plan: &Plan) -> IndexDraft {
    let raw = json!({
        "name": plan.name,
        "description": plan.description,
        "inputSchema": {"type": "object", "properties": {"path": {"description": "where"}}},
        "categories": [plan.category],
    });
    read(server, &plan.name, raw.to_string(), plan.risk)
}

fn read(server: &str, name: &str, raw: String, risk: RiskLevel) -> IndexDraft {
    IndexDraft::parse(
        &ServerId::new(server),
        &name.into(),
        &raw.into(),
        None,
        risk,
    )
}

/// A stand-in for a model: a direction for each text.
fn vector(hash: &[u8; 32]) -> Vector {
    let numbers: Vec<f32> = hash.iter().map(|byte| f32::from(*byte) - 127.5).collect();
    Vector::quantize(&numbers).unwrap()
}

fn indexed(server: &str, plans: &[Plan]) -> Arc<ServerIndex> {
    let drafts = plans.iter().map(|plan| draft(server, plan)).collect();
    let server = ServerIndex::new(&ServerId::new(server), "keeps things", drafts);
    Arc::new(server.with_vectors(&mut |text| Some(vector(&text.hash))))
}

fn index(servers: &[(&str, &[Plan])]) -> Index {
    let servers = servers.iter().map(|(server, plans)| indexed(server, plans));
    servers.fold(Index::default(), |index, server| index.with_server(server))
}

struct Asked {
    strategy: Strategy,
    filter: SearchFilter,
    most: usize,
    meanings: bool,
}

const ALL: Asked = Asked {
    strategy: Strategy::Hybrid,
    filter: SearchFilter {
        categories: Vec::new(),
        risk_max: None,
    },
    most: RESULTS_MAX,
    meanings: true,
};

type Answer = (Vec<(String, f32)>, usize, Strategy);

fn ask(index: &Index, text: &str, asked: &Asked, visible: &dyn Fn(&IndexedTool) -> bool) -> Answer {
    let request = SearchRequest::parse(text);
    let meanings = request.embedding_texts().iter();
    let meanings = meanings.map(|text| vector(blake3::hash(text.as_bytes()).as_bytes()));
    let meanings: Vec<Vector> = meanings.filter(|_| asked.meanings).collect();
    let found = index.search(&IndexSearch {
        request: &request,
        vectors: &meanings,
        strategy: asked.strategy,
        filter: &asked.filter,
        limit: asked.most,
        is_visible: visible,
    });
    let named = |hit: &SearchHit<'_>| {
        (
            format!("{}:{}", hit.entry.server, hit.entry.name),
            hit.score,
        )
    };
    let hits = found.hits.iter().map(named).collect();
    (hits, found.visible, found.strategy)
}

fn names(index: &Index, text: &str, strategy: Strategy) -> Vec<String> {
    let asked = Asked { strategy, ..ALL };
    let (hits, _, _) = ask(index, text, &asked, &|_| true);
    hits.into_iter().map(|(name, _)| name).collect()
}

fn word() -> impl Plans<Value = String> {
    proptest::sample::select(vec!["read", "file", "list", "mail", "send", "weather"])
        .prop_map(str::to_owned)
}

fn a_plan() -> impl Plans<Value = Plan> {
    let words = proptest::collection::vec(word(), 1..6);
    let category = proptest::sample::select(vec!["filesystem", "filesystem/read", "net"]);
    let risk = proptest::sample::select(RiskLevel::ALL.to_vec());
    (word(), word(), words, category, risk).prop_map(|(a, b, words, category, risk)| Plan {
        name: format!("{a}_{b}"),
        description: words.join(" "),
        category,
        risk,
    })
}

fn a_server() -> impl Plans<Value = (usize, Vec<Plan>)> {
    (0..4_usize, proptest::collection::vec(a_plan(), 0..5))
}

const SERVERS: [&str; 4] = ["alpha", "beta", "gamma", "delta"];

fn strategies() -> impl Plans<Value = Strategy> {
    proptest::sample::select(vec![
        Strategy::Keyword,
        Strategy::Semantic,
        Strategy::Category,
        Strategy::Hybrid,
    ])
}

proptest! {
    /// MGP-237: however servers came, changed and left, what is found is what a new index of those
    /// that are there finds.
    #[test]
    fn incremental_and_full_builds_are_equal(
        changes in proptest::collection::vec((a_server(), any::<bool>()), 1..12),
        text in proptest::collection::vec(word(), 1..5),
        strategy in strategies(),
    ) {
        let mut grown = Index::default();
        let mut there: BTreeMap<&str, Vec<Plan>> = BTreeMap::new();
        for ((server, plans), leaves) in changes {
            let server = SERVERS[server];
            if leaves {
                grown = grown.without_server(&ServerId::new(server));
                there.remove(server);
            } else {
                grown = grown.with_server(indexed(server, &plans));
                there.insert(server, plans);
            }
        }
        let servers: Vec<_> = there.iter().rev().map(|(id, plans)| (*id, &plans[..])).collect();
        let built = index(&servers);
        let asked = Asked { strategy, ..ALL };
        let text = text.join(", ");
        prop_assert_eq!(
            ask(&grown, &text, &asked, &|_| true),
            ask(&built, &text, &asked, &|_| true)
        );
        prop_assert_eq!(grown.len(), built.len());
    }

    /// MGP-236, A-11: a tool that may not be seen is not in the answer, and changes nothing in it: no
    /// score, no order, no count.
    #[test]
    fn hidden_tools_do_not_influence_results(
        plans in proptest::collection::vec((a_plan(), any::<bool>()), 1..12),
        text in proptest::collection::vec(word(), 1..5),
        strategy in strategies(),
    ) {
        let named = plans.into_iter().enumerate().map(|(at, (plan, hidden))| {
            let name = format!("{}_{}", plan.name, ["x", "y"][usize::from(hidden)]);
            (SERVERS[at % 4], Plan { name, ..plan }, hidden)
        });
        let named: Vec<_> = named.collect();
        let of = |also_hidden: bool| {
            let plans = |server: &str| {
                let own = named.iter().filter(|(id, _, hidden)| *id == server && (also_hidden || !hidden));
                own.map(|(_, plan, _)| plan.clone()).collect::<Vec<_>>()
            };
            let servers = SERVERS.map(|server| indexed(server, &plans(server)));
            servers.into_iter().fold(Index::default(), |index, server| index.with_server(server))
        };
        let asked = Asked { strategy, ..ALL };
        let text = format!("{} y reed", text.join(", "));
        let hidden_from = ask(&of(true), &text, &asked, &|entry| !entry.name.ends_with("_y"));
        let without = ask(&of(false), &text, &asked, &|_| true);
        prop_assert_eq!(hidden_from, without);
    }

    /// MGP-244, MGP-245, MGP-240: the best first, from 0 to 1, no more than asked for, and nothing
    /// that the filter leaves out.
    #[test]
    fn results_are_ordered_bounded_and_filtered(
        servers in proptest::collection::vec(a_server(), 1..5),
        text in "\\PC{0,80}",
        strategy in strategies(),
        most in 0..6_usize,
        risk in proptest::sample::select(RiskLevel::ALL.to_vec()),
    ) {
        let index = servers.iter().fold(Index::default(), |index, (server, plans)| {
            index.with_server(indexed(SERVERS[*server], plans))
        });
        let filter = SearchFilter { categories: vec!["Filesystem".into()], risk_max: Some(risk) };
        let request = SearchRequest::parse(&text);
        let found = index.search(&IndexSearch {
            request: &request,
            vectors: &[vector(&[7; 32])],
            strategy,
            filter: &filter,
            limit: most,
            is_visible: &|_| true,
        });
        prop_assert!(found.hits.len() <= most);
        prop_assert!(found.hits.is_sorted_by(|a, b| a.score >= b.score));
        for hit in &found.hits {
            prop_assert!((0.0..=1.0).contains(&hit.score));
            prop_assert!(hit.entry.risk <= risk);
            prop_assert!(hit.entry.categories[0].starts_with("filesystem"));
        }
        let again = index.search(&IndexSearch {
            request: &request,
            vectors: &[vector(&[7; 32])],
            strategy,
            filter: &filter,
            limit: most,
            is_visible: &|_| true,
        });
        prop_assert_eq!(found, again);
    }
}

/// MGP-238: a slip in a name is forgiven, and so is a name written as one word.
#[test]
fn a_name_that_is_almost_right_is_found() {
    let files = [
        plan("read_file", "Returns the bytes of it"),
        plan("write_file", "Stores bytes"),
        plan("list_directory", "What lies in it"),
    ];
    let index = index(&[("fs", &files)]);
    for text in [
        "read_fiel",
        "readfile",
        "raed_file",
        "READ-FILE",
        "readFile",
    ] {
        assert_eq!(
            names(&index, text, Strategy::Keyword)[0],
            "fs:read_file",
            "{text}"
        );
    }
    assert_eq!(
        names(&index, "direcotry", Strategy::Keyword),
        ["fs:list_directory"]
    );
    assert!(names(&index, "elephants", Strategy::Keyword).is_empty());
}

/// MGP-240: a category holds what stands below it, and not what only begins like it.
#[test]
fn a_category_includes_its_subcategories() {
    let placed = |name: &str, category| Plan {
        category,
        ..plan(name, "")
    };
    let tools = [
        placed("a", "filesystem"),
        placed("b", "filesystem/read"),
        placed("c", "filesystems"),
        placed("d", "net/filesystem"),
    ];
    let index = index(&[("s", &tools)]);
    let asked = Asked {
        strategy: Strategy::Category,
        filter: SearchFilter {
            categories: vec!["/Filesystem/".into()],
            risk_max: None,
        },
        ..ALL
    };
    let (hits, visible, _) = ask(&index, "", &asked, &|_| true);
    assert_eq!(
        hits.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        ["s:a", "s:b"]
    );
    assert_eq!(visible, 2);
}

/// without a model it is searched by words, and the answer says so.
#[test]
fn without_a_vector_search_uses_words() {
    let index = index(&[("fs", &[plan("read_file", "reads")])]);
    for strategy in [Strategy::Hybrid, Strategy::Semantic] {
        let asked = Asked {
            strategy,
            meanings: false,
            ..ALL
        };
        let (hits, _, by) = ask(&index, "read", &asked, &|_| true);
        assert_eq!((hits.len(), by), (1, Strategy::Keyword));
    }
}

/// MGP-239, A-10: a vector that a tool brings counts instead of one of ours, and a tool whose texts
/// are not read yet is found by its words meanwhile.
#[test]
fn a_tool_has_its_vector_or_waits_for_one() {
    let mut own = vec![0.0; 32];
    own[3] = 2.0;
    let raw = json!({"name": "oracle", "embedding": own}).to_string();
    let drafts = vec![
        read("s", "oracle", raw, RiskLevel::Safe),
        draft("s", &plan("read_file", "reads")),
    ];
    let server = ServerIndex::new(&ServerId::new("s"), "", drafts);
    assert_eq!((server.embedded_count(), server.texts().count()), (1, 3));
    let index = Index::default().with_server(Arc::new(server));
    let request = SearchRequest::parse("file");
    let search = |meaning: &Vector, strategy| {
        let found = index.search(&IndexSearch {
            request: &request,
            vectors: std::slice::from_ref(meaning),
            strategy,
            filter: &SearchFilter::default(),
            limit: 5,
            is_visible: &|_| true,
        });
        let names = found.hits.iter().map(|hit| hit.entry.name.to_string());
        (names.collect::<Vec<_>>(), found.strategy)
    };
    let meaning = Vector::quantize(&own).unwrap();
    assert_eq!(
        search(&meaning, Strategy::Semantic),
        (vec!["oracle".into()], Strategy::Semantic)
    );
    let both = search(&meaning, Strategy::Hybrid).0;
    assert!(both.contains(&"read_file".to_owned()));
    let foreign = Vector::quantize(&[1.0, 0.0]).unwrap();
    assert_eq!(
        search(&foreign, Strategy::Semantic),
        (vec!["read_file".into()], Strategy::Keyword)
    );
}

/// MGP-239: a tool that is the only one is found by what it means, and so is one of twins: neither
/// stands out of anything.
#[test]
fn a_single_tool_is_found_by_its_vector() {
    let mut own = vec![0.0; 32];
    own[3] = 2.0;
    let meaning = Vector::quantize(&own).unwrap();
    let request = SearchRequest::parse("holiday");
    for names in [&["oracle"][..], &["oracle", "twin"]] {
        let raw = |name: &str| json!({"name": name, "embedding": own}).to_string();
        let drafts = names
            .iter()
            .map(|name| read("s", name, raw(name), RiskLevel::Safe));
        let server = ServerIndex::new(&ServerId::new("s"), "", drafts.collect());
        let index = Index::default().with_server(Arc::new(server));
        for strategy in [Strategy::Hybrid, Strategy::Semantic] {
            let found = index.search(&IndexSearch {
                request: &request,
                vectors: std::slice::from_ref(&meaning),
                strategy,
                filter: &SearchFilter::default(),
                limit: 5,
                is_visible: &|_| true,
            });
            assert_eq!(found.hits.len(), names.len(), "{strategy:?}");
        }
    }
}

/// MGP-236: nothing a server says makes the index larger than its bounds.
#[test]
fn indexing_of_hostile_definitions_is_bounded() {
    let many: serde_json::Map<_, _> = (0..100_000)
        .map(|n| {
            (
                format!("parameter{n}"),
                json!({"description": "x".repeat(9)}),
            )
        })
        .collect();
    let mut deep = json!({"properties": {"innermost": {}}});
    for _ in 0..60 {
        deep = json!({"properties": {"level": deep}});
    }
    let words: Vec<String> = (0..1_500_000).map(|n| format!("w{n:x}")).collect();
    let all = [
        json!({"description": words.join(" ")}),
        json!({"inputSchema": {"properties": many}}),
        json!({"inputSchema": deep}),
        json!({"description": "\u{202e}\u{0}".repeat(100_000), "title": {"not": "text"}}),
        json!({"categories": vec!["c"; 100_000], "keywords": ["k".repeat(1 << 20), 7, null]}),
        json!({"embedding": vec![1.0; 100_000]}),
        json!({"embedding": ["a", 1]}),
        json!([1, 2, 3]),
    ];
    let drafts = all.iter().map(|raw| {
        let name = "n".repeat(1024);
        read("s", &name, raw.to_string(), RiskLevel::Safe)
    });
    let server = ServerIndex::new(
        &ServerId::new("s"),
        &"about ".repeat(1 << 20),
        drafts.collect(),
    );
    for text in server.texts() {
        assert!(text.text.len() <= 2048, "{} bytes", text.text.len());
    }
    let labels = |entry: &IndexedTool| entry.categories.len() + entry.keywords.len();
    assert!(server.entries().iter().all(|entry| labels(entry) <= 64));
    assert!(
        server.postings.len() < 2_000,
        "{} postings",
        server.postings.len()
    );
    assert_eq!(server.embedded_count(), 0);
}

/// MGP-241: of a text too long to be a description the beginning is read, and how much was not is told.
#[test]
fn a_request_is_bounded() {
    let begun = format!("read a file{}", " é".repeat(REQUEST_MAX));
    let cut = SearchRequest::parse(&begun);
    assert!(
        cut.unread_bytes() > 2 * REQUEST_MAX - 16,
        "{}",
        cut.unread_bytes()
    );
    assert!(begun.is_char_boundary(begun.len() - cut.unread_bytes()));
    assert_eq!(
        SearchRequest::parse(&"x".repeat(REQUEST_MAX)).unread_bytes(),
        0
    );
    let long = SearchRequest::parse(&"many different, words! ".repeat(700));
    assert!(long.texts() <= 9 && long.embedding_texts().len() <= 9 + 16);
    let files = [plan("read_file", "reads")];
    let index = index(&[("fs", &files)]);
    assert_eq!(names(&index, "", Strategy::Keyword), Vec::<String>::new());
    assert_eq!(
        names(&index, "read 'a.b' \u{202e}\u{0}", Strategy::Keyword),
        ["fs:read_file"]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// MGP-237, A-10: however a search saves its steps, it finds what the reference model finds:
    /// among many servers, some of them hidden, with requests of one part and of many, and tools that
    /// have no vector yet.
    #[test]
    fn the_index_matches_the_reference_implementation(
        servers in proptest::collection::vec(proptest::collection::vec(a_plan(), 0..12), 1..20),
        parts in proptest::collection::vec(proptest::collection::vec(word(), 1..6), 1..12),
        hidden in any::<u8>(),
        unread in any::<u8>(),
    ) {
        let mut index = Index::default();
        for (n, plans) in servers.iter().enumerate() {
            let server = format!("server{n}");
            let drafts = plans.iter().map(|plan| draft(&server, plan)).collect();
            let server = ServerIndex::new(&ServerId::new(&*server), "keeps things", drafts);
            let known = |text: &EmbeddingText| (text.hash[0] > unread / 4).then(|| vector(&text.hash));
            index = index.with_server(Arc::new(server.with_vectors(&mut |text| known(text))));
        }
        let text = parts.iter().map(|part| part.join(" ")).collect::<Vec<_>>().join(", ");
        let request = SearchRequest::parse(&text);
        let meanings = request.embedding_texts().iter();
        let meanings = meanings.map(|text| vector(blake3::hash(text.as_bytes()).as_bytes()));
        let meanings: Vec<Vector> = meanings.collect();
        let seen = |entry: &IndexedTool| entry.name.len() * 37 % 256 >= usize::from(hidden / 3);
        let search = IndexSearch {
            request: &request,
            vectors: &meanings,
            strategy: Strategy::Hybrid,
            filter: &SearchFilter::default(),
            limit: 10,
            is_visible: &seen,
        };
        let found = index.search(&search);
        if found.strategy == Strategy::Hybrid {
            let mut plain = reference::score_hybrid(&index, &search);
            prop_assert_eq!(plain.len(), found.visible);
            plain.retain(|(_, score)| *score > 1e-4);
            plain.sort_by(|a, b| b.1.total_cmp(&a.1));
            for (hit, (_, score)) in found.hits.iter().zip(&plain) {
                prop_assert!((hit.score - score).abs() < 1e-3, "{} {score}", hit.score);
                let same = plain.iter().find(|(entry, _)| std::ptr::eq(*entry, hit.entry));
                let own = same.map_or(0.0, |(_, score)| *score);
                prop_assert!((hit.score - own).abs() < 1e-3, "{:?} {own}", hit.entry.name);
            }
            prop_assert!(found.hits.len() >= plain.len().min(10));
        }
    }
}

/// A word that nearly every tool has says less than one that few have.
#[test]
fn rare_words_count_more() {
    let mut tools: Vec<Plan> = (0..20)
        .map(|n| plan(&format!("get_{n}"), "get it"))
        .collect();
    tools.push(plan("get_weather", "get it"));
    let index = index(&[("s", &tools)]);
    assert_eq!(
        names(&index, "get weather", Strategy::Keyword)[0],
        "s:get_weather"
    );
}

/// A server of another node whose tools have this vector.
fn elsewhere(plans: &[Plan], vector: &Vector) -> Arc<ServerIndex> {
    let server = "nas/files";
    let drafts = plans.iter().map(|plan| draft(server, plan));
    let drafts = drafts.map(|draft| draft.with_vector(Some(vector.clone())));
    let server = ServerIndex::new(&ServerId::new(server), "", drafts.collect());
    assert!(server.texts().next().is_none(), "nothing is embedded anew");
    assert_eq!(server.embedded_count(), plans.len());
    Arc::new(server)
}

/// No text of a tool of another node is kept, nor embedded; a vector that is known of the same text serves.
#[test]
fn a_remote_tool_is_found_by_a_local_vector() {
    let drafts = |server: &str| vec![draft(server, &plan("read_file", "reads"))];
    let shelf = |server: &str| ServerIndex::new(&ServerId::new(server), "", drafts(server));
    let (here, there) = (shelf("files"), shelf("nas/files"));
    let known: BTreeSet<[u8; 32]> = here.texts().map(|text| text.hash).collect();
    assert_eq!((known.len(), there.texts().count()), (3, 0));
    // What is said of the server is another one's.
    let filled = there.with_vectors(&mut |text| {
        let known = known.contains(&text.hash) || text.text.starts_with("nas");
        known.then(|| vector(&text.hash))
    });
    assert_eq!(filled.embedded_count(), 1);
    assert_eq!(there.with_vectors(&mut |_| None).embedded_count(), 0);
}

/// PRJ-008: a tool of another node that came with a vector which fits whatever is looked for is not ahead of
/// the tool of this node that does it; where none does, it is found.
#[test]
fn a_vector_similar_to_everything_does_not_outrank_local_tools() {
    let request = SearchRequest::parse("list the letters of a mailbox");
    let near = |share: f32| Vector::quantize(&[share, 1.0 - share]).unwrap();
    let asked = near(1.0);
    let meanings = vec![asked.clone(); request.embedding_texts().len()];
    let plans: Vec<Plan> = (0..30)
        .map(|n| plan(&format!("other_{n}"), "something else"))
        .collect();
    let here = |likest: f32| {
        let drafts = std::iter::once(plan("inbox", "shows post")).chain(plans.clone());
        let drafts = drafts.enumerate().map(|(n, plan)| {
            let share = if n == 0 { likest } else { 0.0 };
            draft("mail", &plan).with_vector(Some(near(share)))
        });
        Arc::new(ServerIndex::new(
            &ServerId::new("mail"),
            "",
            drafts.collect(),
        ))
    };
    let fits_all: Vec<Plan> = (0..3)
        .map(|n| plan(&format!("all_{n}"), "everything"))
        .collect();
    let first = |likest: f32, strategy| {
        let index = Index::default()
            .with_server(here(likest))
            .with_server(elsewhere(&fits_all, &asked));
        let found = index.search(&IndexSearch {
            request: &request,
            vectors: &meanings,
            strategy,
            filter: &ALL.filter,
            limit: 3,
            is_visible: &|_| true,
        });
        found.hits[0].entry.server.to_string()
    };
    for strategy in [Strategy::Semantic, Strategy::Hybrid] {
        assert_eq!(first(0.7, strategy), "mail", "{strategy:?}");
    }
    assert_eq!(first(0.0, Strategy::Semantic), "nas/files");
}
