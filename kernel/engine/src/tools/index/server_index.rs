//! One server's part of the index. It never changes; a change of the server makes another.

pub(super) mod postings;
pub(super) mod spelling;

use std::sync::Arc;

use mgp_protocol::ids::ServerId;

use self::postings::Postings;
use self::spelling::SpelledNames;
use super::entry::{Draft, IndexedTool};
use super::vectors::{Rows, Vector};
use super::words::parts;

/// Most bytes of a text that is given to a model. It reads 256 words or parts of words.
const TEXT_MAX: usize = 2048;

/// What a text is known by: same hash, same vector.
pub(super) type TextHash = [u8; 32];

/// A text to be made a vector, and the name of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// BLAKE3 of the text.
    pub hash: TextHash,
    /// What the model reads; nothing where it is not to.
    pub text: Arc<str>,
}

/// What the vector of a tool is made of.
#[derive(Clone, Debug, PartialEq)]
enum Meaning {
    /// The server sent one, or its node did.
    Given(Vector),
    /// All that is said of it, and its name by itself: a name is the densest thing said.
    Told { whole: Text, name: Text },
    /// The hashes of the same, of a tool of another node: its texts are made vectors there, but a vector of one
    /// that is known here serves as well.
    Elsewhere { whole: TextHash, name: TextHash },
}

/// The tools of one server.
#[derive(Debug)]
pub struct ServerIndex {
    pub(super) server: ServerId,
    pub(super) entries: Arc<[IndexedTool]>,
    pub(super) postings: Arc<Postings>,
    pub(super) names: Arc<SpelledNames>,
    pub(super) rows: Rows,
    about: Text,
    meanings: Arc<[Meaning]>,
}

impl ServerIndex {
    /// Of a server and what it says of itself. No tool has a vector yet, but those that were sent one.
    #[must_use]
    pub fn new(server: &ServerId, about: &str, drafts: Vec<Draft>) -> Self {
        let about = &about[..about.floor_char_boundary(TEXT_MAX)];
        let embeds = !server.is_of_node();
        let meanings: Arc<[Meaning]> = drafts.iter().map(|draft| meaning(draft, embeds)).collect();
        let postings = Postings::of(server.as_str(), about, &drafts);
        let server = Self {
            server: server.clone(),
            names: Arc::new(SpelledNames::of(&drafts)),
            postings: Arc::new(postings),
            entries: drafts.into_iter().map(|draft| draft.entry).collect(),
            rows: Rows::default(),
            about: text(format!("{}: {about}", spaced(server.as_str()))),
            meanings,
        };
        server.with_vectors(&mut |_| None)
    }

    /// Its server.
    #[must_use]
    pub fn server(&self) -> &ServerId {
        &self.server
    }

    /// Its tools.
    #[must_use]
    pub fn entries(&self) -> &[IndexedTool] {
        &self.entries
    }

    /// Those that can be found by meaning, by name, each with its vector.
    pub fn vectors(&self) -> impl Iterator<Item = (&Arc<str>, Vector)> {
        let entries = self.entries.iter().enumerate();
        entries.filter_map(|(row, entry)| Some((&entry.name, self.rows.vector(row)?)))
    }

    /// How many of them can be found by meaning.
    #[must_use]
    pub fn embedded(&self) -> usize {
        self.rows.count()
    }

    /// The texts whose vectors the server wants.
    #[cfg(test)]
    pub(crate) fn texts(&self) -> impl Iterator<Item = &Text> {
        let told = self.meanings.iter().filter_map(|meaning| match meaning {
            Meaning::Told { whole, name } => Some([whole, name]),
            Meaning::Given(_) | Meaning::Elsewhere { .. } => None,
        });
        let mut told = told.flatten().peekable();
        let about = told.peek().is_some().then_some(&self.about);
        about.into_iter().chain(told)
    }

    /// The same, each with how often its tool was called; what is said of the server goes with the
    /// tool that is called most, for no tool has a vector without it.
    pub fn texts_by(&self, uses: &dyn Fn(&str) -> u64) -> Vec<(u64, &Text)> {
        let told = self.entries.iter().zip(self.meanings.iter());
        let mut texts = Vec::new();
        for (entry, meaning) in told {
            if let Meaning::Told { whole, name } = meaning {
                let uses = uses(&entry.name);
                texts.extend([(uses, whole), (uses, name)]);
            }
        }
        let most = texts.iter().map(|(uses, _)| *uses).max();
        most.map_or(texts.clone(), |most| {
            let about = std::iter::once((most, &self.about));
            about.chain(texts).collect()
        })
    }

    /// The same server with what is known by now; of tools of other nodes `known` is told the hashes alone. A tool whose texts are not all known has no vector:
    /// half a meaning would be compared with whole ones.
    #[must_use]
    pub fn with_vectors(&self, known: &mut dyn FnMut(&Text) -> Option<Vector>) -> Self {
        let about = known(&self.about);
        let vectors = self.meanings.iter().map(|meaning| {
            let (whole, name) = match meaning {
                Meaning::Given(vector) => return Some(vector.clone()),
                Meaning::Told { whole, name } => (whole, name),
                Meaning::Elsewhere { whole, name } => (&unread(*whole), &unread(*name)),
            };
            let about = about.as_ref()?;
            Vector::between(&[&known(whole)?, &known(name)?, about])
        });
        Self {
            server: self.server.clone(),
            entries: Arc::clone(&self.entries),
            postings: Arc::clone(&self.postings),
            names: Arc::clone(&self.names),
            rows: Rows::of(&vectors.collect::<Vec<_>>()),
            about: self.about.clone(),
            meanings: Arc::clone(&self.meanings),
        }
    }
}

fn meaning(draft: &Draft, embeds: bool) -> Meaning {
    let given = draft.embedding.as_ref().and_then(|given| Vector::of(given));
    if let Some(vector) = draft.vector.clone().or(given) {
        return Meaning::Given(vector);
    }
    let entry = &draft.entry;
    let title = match &*draft.title {
        "" => String::new(),
        title => format!(" {title}:"),
    };
    let parameters = draft.parameters.join(", ");
    let whole = format!(
        "{}:{title} {} ({parameters})",
        entry.name, draft.description
    );
    let (whole, name) = (text(whole), text(spaced(&entry.name)));
    match embeds {
        true => Meaning::Told { whole, name },
        false => Meaning::Elsewhere {
            whole: whole.hash,
            name: name.hash,
        },
    }
}

/// A text of which only the hash is kept.
fn unread(hash: TextHash) -> Text {
    Text {
        hash,
        text: Arc::default(),
    }
}

fn text(mut text: String) -> Text {
    text.truncate(text.floor_char_boundary(TEXT_MAX));
    Text {
        hash: *blake3::hash(text.as_bytes()).as_bytes(),
        text: text.into(),
    }
}

/// An identifier as a model reads words.
fn spaced(identifier: &str) -> String {
    let words = identifier.split([' ', '.', '/', ':']).flat_map(parts);
    words.collect::<Vec<_>>().join(" ")
}
