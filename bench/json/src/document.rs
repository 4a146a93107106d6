//! A JSON document as a tree of slices of its text. Slices keep the digits of numbers and the
//! escapes of strings; a parser of values would lose them.
//!
//! The reader expects valid JSON, which serde_json has checked. It recurses once per level.

/// A value.
pub enum Json<'a> {
    /// A number, a string, a literal, or an empty object or list.
    Plain(&'a str),
    /// An object or a list that is not empty.
    Compound(Compound<'a>),
}

/// An object or a list.
pub struct Compound<'a> {
    /// `{` or `[`.
    pub open: char,
    /// `}` or `]`.
    pub close: char,
    /// Its values, in the order of the text.
    pub children: Vec<Child<'a>>,
}

/// A member of an object, or an element of a list.
pub struct Child<'a> {
    /// The key with its quotes; none in a list.
    pub key: Option<&'a str>,
    /// The value.
    pub value: Json<'a>,
}

/// Reads a valid document.
pub fn read(text: &str) -> Json<'_> {
    Scanner { rest: text }.value()
}

impl Json<'_> {
    /// The value in one line.
    pub fn compact(&self) -> String {
        match self {
            Json::Plain(text) => (*text).to_owned(),
            Json::Compound(Compound { open, close, children }) => {
                let children = children.iter().map(|child| child.prefix() + &child.value.compact());
                format!("{open}{}{close}", children.collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// Whether it is a list of plain values.
    pub fn is_plain_list(&self) -> bool {
        matches!(self, Json::Compound(compound) if compound.is_list()
            && compound.children.iter().all(|child| matches!(child.value, Json::Plain(_))))
    }
}

impl Compound<'_> {
    /// Whether it is a list.
    pub fn is_list(&self) -> bool {
        self.open == '['
    }
}

impl Child<'_> {
    /// Text before the value.
    pub fn prefix(&self) -> String {
        self.key.map(|key| format!("{key}: ")).unwrap_or_default()
    }
}

struct Scanner<'a> {
    rest: &'a str,
}

impl<'a> Scanner<'a> {
    fn value(&mut self) -> Json<'a> {
        match self.next_symbol() {
            Some('{') => self.compound('{', '}'),
            Some('[') => self.compound('[', ']'),
            _ => Json::Plain(self.plain()),
        }
    }

    fn compound(&mut self, open: char, close: char) -> Json<'a> {
        let mut children = Vec::new();
        self.skip(open);
        while !self.skip(close) {
            let key = (open == '{').then(|| self.plain());
            self.skip(':');
            children.push(Child { key, value: self.value() });
            self.skip(',');
        }
        match (children.is_empty(), open) {
            (true, '{') => Json::Plain("{}"),
            (true, _) => Json::Plain("[]"),
            _ => Json::Compound(Compound { open, close, children }),
        }
    }

    /// Takes a string, a number or a literal.
    fn plain(&mut self) -> &'a str {
        let is_string = self.next_symbol() == Some('"');
        let mut escaped = false;
        let end = self.rest.char_indices().skip(1).find_map(|(at, symbol)| {
            if !is_string {
                return (symbol.is_whitespace() || ",:]}".contains(symbol)).then_some(at);
            }
            let closes = symbol == '"' && !escaped;
            escaped = symbol == '\\' && !escaped;
            closes.then_some(at + 1)
        });
        let (token, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        token
    }

    /// The next symbol that is not white space.
    fn next_symbol(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    /// Takes `symbol` if it is next.
    fn skip(&mut self, symbol: char) -> bool {
        let found = self.next_symbol() == Some(symbol);
        if found {
            self.rest = &self.rest[symbol.len_utf8()..];
        }
        found
    }
}
