//! What comes of a request for a tool that is there, and for one that is not (MGP §16.6).
//!
//! Whether a tool does what is asked for at all is judged by how like it is, by meaning or by words. The
//! bounds stand in the engine; here is what they let through, and what others would.

use mgp_engine::tools::index::{
    Evidence, Index, IndexSearch, SearchFilter, SearchRequest, Strategy, Vector,
};
use mgp_engine::tools::tool_request_decision::CANDIDATES_MAX;
use mgp_tests::load::{Cell, Table};

use super::collection::Collection;
use super::vectors::VectorCache;

/// What no tool of the collection does.
const ELSEWHERE: [&str; 48] = [
    "turn on the lights in the living room",
    "set the thermostat to 20 degrees",
    "lock the front door",
    "start the robot vacuum cleaner",
    "open the garage door",
    "water the garden",
    "send an e-mail to a customer",
    "send a text message to a phone number",
    "make a phone call",
    "post a message to a Slack channel",
    "invite people to a video conference",
    "add an appointment to my calendar",
    "create an issue in Jira",
    "assign a support ticket to an agent",
    "charge a credit card",
    "refund a payment",
    "send an invoice",
    "transfer money between bank accounts",
    "file a tax return",
    "run payroll for employees",
    "order a pizza for delivery",
    "call a taxi",
    "rent a car",
    "check in to a flight",
    "track a parcel",
    "print a shipping label",
    "reorder stock for the warehouse",
    "print a document on the office printer",
    "scan a paper document",
    "slice a model for a 3D printer",
    "move the robot arm",
    "fly a drone along a route",
    "read a heart rate from a fitness watch",
    "refill a prescription",
    "book an appointment with a dentist",
    "transcribe speech to text",
    "read a text aloud",
    "translate a text from German to French",
    "generate a photo from a description",
    "remove the background of a picture",
    "cut a video into clips",
    "compose a melody",
    "tune a guitar",
    "query a PostgreSQL database",
    "restart a Kubernetes deployment",
    "rotate an encryption key",
    "block an address in the firewall",
    "train a neural network",
];
/// Requests made of letters.
const LETTERS: [&str; 8] = [
    "xylophone quux",
    "zzgrmbl",
    "foo bar baz",
    "asdf jkl qwertz",
    "the of and to",
    "blorp the frobnicator",
    "42",
    "???",
];
/// How much words count beside the meaning, and what both must come to.
const OF_WORDS: [f32; 3] = [0.35, 0.5, 0.7];
const LEAST: [f32; 4] = [0.5, 0.55, 0.6, 0.65];
/// Bounds by words where no meaning is known.
const ALONE: [f32; 4] = [0.2, 0.3, 0.4, 0.5];

/// A tool that was found.
struct Found {
    tool: String,
    score: f32,
    evidence: Evidence,
}

impl Found {
    fn words(&self) -> f32 {
        self.evidence.word_score.unwrap_or(0.0)
    }
}

fn fits(one: &Found) -> bool {
    one.evidence.is_match()
}

/// A capability as it was searched for, and the tools that people used for it; without any, there is none.
struct Asked<'a> {
    gold: &'a [String],
    /// By words and meaning.
    found: Vec<Found>,
    /// By words alone.
    worded: Vec<Found>,
}

/// How many there were, with and without a tool of theirs, and with none at all.
#[derive(Default)]
struct Came {
    right: usize,
    other: usize,
    nothing: usize,
}

impl Came {
    /// Of the first that `fit` lets through.
    fn of(all: &[Asked<'_>], meaning: bool, fit: &dyn Fn(&Found) -> bool) -> Self {
        let mut came = Self::default();
        for asked in all {
            let found = if meaning { &asked.found } else { &asked.worded };
            match found.iter().find(|one| fit(one)) {
                Some(first) if asked.gold.contains(&first.tool) => came.right += 1,
                Some(_) => came.other += 1,
                None => came.nothing += 1,
            }
        }
        came
    }

    fn shares(&self) -> [f64; 3] {
        let all = (self.right + self.other + self.nothing).max(1) as f64;
        [self.right, self.other, self.nothing].map(|part| part as f64 / all)
    }
}

pub(crate) fn tables(
    collection: &Collection,
    index: &Index,
    vectors: &mut VectorCache<'_>,
) -> Vec<Table> {
    let mut asked = |text: &str, gold| Asked {
        gold,
        found: sought(index, &vectors.request_vectors(text), text),
        worded: sought(index, &[], text),
    };
    let mut steps = Vec::new();
    for task in &collection.tasks {
        steps.extend(task.steps.iter().map(|step| asked(step, &task.gold)));
    }
    let elsewhere: Vec<_> = ELSEWHERE.iter().map(|text| asked(text, &[])).collect();
    let letters: Vec<_> = LETTERS.iter().map(|text| asked(text, &[])).collect();
    // Every fourth is enough to see, and spares minutes.
    let own: Vec<_> = collection.tools.iter().step_by(4).collect();
    let own: Vec<_> = own.iter().map(|tool| vec![tool.name.clone()]).collect();
    let names = own.iter().map(|own| asked(&spoken(&own[0]), own));
    let names = names.collect();
    let all = [steps, names, elsewhere, letters];
    vec![bounds(&all), distances(&all[0])]
}

/// A name as somebody says it who does not know it: its words.
fn spoken(name: &str) -> String {
    name.replace(['_', '-'], " ")
}

fn bounds(all: &[Vec<Asked<'_>>; 4]) -> Table {
    let mut rows = Vec::new();
    let mut row = |bounds: String, meaning: bool, fit: &dyn Fn(&Found) -> bool| {
        let came = all
            .each_ref()
            .map(|asked| Came::of(asked, meaning, fit).shares());
        let [steps, names, elsewhere, letters] = came;
        let others = [names[0], names[2], elsewhere[2], letters[2]];
        let shares = steps.into_iter().chain(others);
        let shares = shares.map(|share| Cell::Number(share, 2));
        rows.push([bounds.into()].into_iter().chain(shares).collect());
    };
    row("the engine's".to_owned(), true, &fits);
    for share in OF_WORDS {
        for least in LEAST {
            let bounds = format!("meaning and {share} of words: {least}");
            row(bounds, true, &|one| {
                let own = one.evidence.similarity.unwrap_or(0.0);
                own + share * one.words() >= least
            });
        }
    }
    row("the engine's, no meaning known".to_owned(), false, &fits);
    for words in ALONE {
        row(format!("words {words}"), false, &|one| one.words() >= words);
    }
    Table {
        title: "Requests: what the first tool is that passes",
        columns: &[
            "bounds",
            "step: a tool that people used",
            "step: another",
            "step: none",
            "name: a tool of that name",
            "name: none",
            "nobody does it: none",
            "letters: none",
        ],
        rows,
    }
}

/// How often a tool behind the best is one that people used, by how far behind it is.
fn distances(steps: &[Asked<'_>]) -> Table {
    let mut rows = Vec::new();
    for (name, from, to) in [
        ("the best", 1.0, f32::INFINITY),
        ("0.95 of its score and more", 0.95, 1.0),
        ("0.9", 0.9, 0.95),
        ("0.8", 0.8, 0.9),
        ("less", 0.0, 0.8),
    ] {
        let (mut right, mut count, mut twins) = (0, 0, 0);
        for asked in steps {
            let passing: Vec<&Found> = asked.found.iter().filter(|c| fits(c)).collect();
            let Some((best, others)) = passing.split_first() else {
                continue;
            };
            let share = |one: &Found| one.score / best.score;
            let here = |one: &&&Found| (from..to).contains(&share(one));
            let these: Vec<&&Found> = if to.is_finite() {
                others.iter().filter(here).collect()
            } else {
                vec![best]
            };
            count += these.len();
            let used = these.iter().filter(|c| asked.gold.contains(&c.tool));
            right += used.count();
            let twin = |one: &&&&Found| to.is_finite() && alike(&one.tool, &best.tool);
            twins += these.iter().filter(twin).count();
        }
        let share = right as f64 / count.max(1) as f64;
        rows.push(vec![
            name.into(),
            Cell::Number(count as f64, 0),
            Cell::Number(share, 2),
            Cell::Number(twins as f64, 0),
        ]);
    }
    Table {
        title: "Requests: tools that pass, by how far they are behind the best",
        columns: &["score", "tools", "people used it", "of the best one's name"],
        rows,
    }
}

fn alike(one: &str, other: &str) -> bool {
    one.replace('-', "_") == other.replace('-', "_")
}

/// As the kernel looks for a capability: with these vectors of it, or by words alone.
fn sought(index: &Index, vectors: &[Vector], capability: &str) -> Vec<Found> {
    let request = SearchRequest::parse(capability);
    let found = index.search(&IndexSearch {
        request: &request,
        vectors,
        strategy: Strategy::Hybrid,
        filter: &SearchFilter::default(),
        limit: CANDIDATES_MAX,
        is_visible: &|_| true,
    });
    let hits = found.hits.iter().map(|hit| Found {
        tool: hit.entry.name.to_string(),
        score: hit.score,
        evidence: hit.evidence,
    });
    hits.collect()
}
