mod changes;
mod example;
mod kernel;
mod problems;
mod servers;

use super::*;

struct Read {
    kernel: KernelConfig,
    servers: ServerResults,
    problems: Vec<Problem>,
    masked: Vec<String>,
}

fn env(name: &str) -> Option<String> {
    match name {
        "CEREBRAS_API_KEY" => Some("sk-secret".into()),
        "HOME" => Some("/home/ada".into()),
        _ => None,
    }
}

fn read_text(text: &str) -> Read {
    read_with(text, &env)
}

fn read_with(text: &str, env: &parsing::Env<'_>) -> Read {
    let mut kernel = KernelConfig::default();
    let path = Path::new("/etc/mgp/mgp.toml");
    let mut read = file::read_file(text, path, env, &mut kernel);
    let wrong = start_order::check(&mut read.servers, &read.start_orders);
    read.problems.extend(wrong);
    Read {
        kernel,
        servers: read.servers,
        problems: read.problems,
        masked: read.masked,
    }
}

impl Read {
    fn messages(&self) -> Vec<String> {
        self.problems.iter().map(Problem::to_string).collect()
    }

    fn spec(&self, id: &str) -> &ServerSpec {
        let specs = self.servers.iter().filter_map(|s| s.as_ref().ok());
        specs
            .into_iter()
            .find(|s| s.id.as_str() == id)
            .unwrap_or_else(|| panic!("{:?}", self.messages()))
    }

    fn why(&self, id: &str) -> String {
        let broken = self.servers.iter().filter_map(|s| s.as_ref().err());
        let its = |b: &&BrokenServer| b.id.as_ref().is_some_and(|of| of.as_str() == id);
        broken
            .into_iter()
            .find(its)
            .expect("it is broken")
            .problem
            .to_string()
    }
}

/// A server entry with the id `x` and these lines.
fn entry(lines: &str) -> Read {
    read_text(&format!("[[servers]]\nid = \"x\"\n{lines}\n"))
}
