//! Reads a table of functions: `functions.txt`, which says what its lines mean, or `device.txt`.

/// A type of C that functions exist for.
#[derive(Debug, Clone, Copy)]
pub struct Type<'a> {
    /// Its TYPENAME.
    pub name: &'a str,
    pub c: &'a str,
    pub rust: &'a str,
    sets: &'a str,
}

impl Type<'_> {
    pub fn is_in(&self, set: &str) -> bool {
        self.sets.split_whitespace().any(|one| one == set)
    }
}

/// A parameter: its type in C, with `TYPE`, and its name.
#[derive(Debug, Clone, Copy)]
pub struct Parameter<'a> {
    pub c: &'a str,
    pub name: &'a str,
}

/// A function, or one for every type of its sets.
#[derive(Debug)]
pub struct Function<'a> {
    flags: Vec<&'a str>,
    pub result: &'a str,
    /// With `TYPENAME`.
    pub name: &'a str,
    pub parameters: Vec<Parameter<'a>>,
    /// In this crate.
    pub rust: &'a str,
}

#[derive(Debug)]
pub enum Line<'a> {
    Section(&'a str),
    Function(Function<'a>),
}

#[derive(Debug)]
pub struct Table<'a> {
    pub types: Vec<Type<'a>>,
    pub lines: Vec<Line<'a>>,
}

/// One function of C.
#[derive(Debug)]
pub struct Entry<'t, 'a> {
    pub function: &'t Function<'a>,
    pub of: Option<Type<'a>>,
    /// It takes a context.
    pub ctx: bool,
}

/// `shmem_ctx_t`, the first parameter of a form with a context.
const CONTEXT: Parameter<'static> = Parameter { c: "shmem_ctx_t", name: "ctx" };

impl<'a> Function<'a> {
    pub fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    /// The types that it exists for; `None`: it stands for itself.
    pub fn types<'t>(
        &'t self,
        table: &'t Table<'a>,
    ) -> Option<impl Iterator<Item = Type<'a>> + 't> {
        let types = table.types.iter().copied();
        (self.name.contains("TYPENAME"))
            .then(|| types.filter(|of| self.flags.iter().any(|flag| of.is_in(flag))))
    }

    /// Those that the arguments of a call may have, each once.
    pub fn distinct_types(&self, table: &Table<'a>) -> Vec<Type<'a>> {
        let types: Vec<Type<'a>> = self.types(table).into_iter().flatten().collect();
        let is_there = |name: &str| types.iter().any(|of| of.name == name);
        let stands = |of: &Type<'a>| {
            let same = of.sets.split_whitespace().find_map(|set| set.strip_prefix("is:"));
            of.is_in("distinct") || same.is_some_and(|name| !is_there(name))
        };
        types.iter().copied().filter(stands).collect()
    }

    /// What C calls it, and C11 and C++ for all types.
    pub fn generic_name(&self) -> String {
        self.name.replace("TYPENAME_", "")
    }
}

impl<'a> Entry<'_, 'a> {
    pub fn name(&self) -> String {
        let name = self.function.name.replace("TYPENAME", self.of.map_or("", |of| of.name));
        if self.ctx { name.replacen('_', "_ctx_", 1) } else { name }
    }

    pub fn parameters(&self) -> Vec<Parameter<'a>> {
        let context = self.ctx.then_some(CONTEXT);
        context.into_iter().chain(self.function.parameters.iter().copied()).collect()
    }

    /// A type of C in it.
    pub fn c_type(&self, c: &str) -> String {
        c.replace("TYPE", self.of.map_or("", |of| of.c))
    }
}

impl<'a> Table<'a> {
    /// A table, which knows these types, too.
    pub fn read(text: &'a str, types: &[Type<'a>]) -> Table<'a> {
        let mut table = Table { types: types.to_vec(), lines: Vec::new() };
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(of) = line.strip_prefix("type ") {
                let parts: Vec<&str> = of.split('|').map(str::trim).collect();
                let [name, c, rust, sets] = parts[..] else { panic!("no type: {line}") };
                table.types.push(Type { name, c, rust, sets });
            } else if let Some(title) = line.strip_prefix("section ") {
                table.lines.push(Line::Section(title));
            } else {
                let function = function(line).unwrap_or_else(|| panic!("no function: {line}"));
                table.lines.push(Line::Function(function));
            }
        }
        table
    }

    /// The functions of C that a line stands for.
    pub fn entries<'t>(&'t self, function: &'t Function<'a>) -> Vec<Entry<'t, 'a>> {
        let types: Vec<Option<Type>> = match function.types(self) {
            Some(types) => types.map(Some).collect(),
            None => vec![None],
        };
        let forms: &[bool] = if function.has("ctx") { &[false, true] } else { &[false] };
        let entry = |&ctx: &bool| types.iter().map(move |&of| Entry { function, of, ctx });
        forms.iter().flat_map(entry).collect()
    }
}

/// `[FLAGS] PROTOTYPE = FUNCTION`.
fn function(line: &str) -> Option<Function<'_>> {
    let (flags, rest) = line.strip_prefix('[')?.split_once("] ")?;
    let (prototype, rust) = rest.split_once(" = ").unwrap_or((rest, ""));
    let (head, parameters) = prototype.strip_suffix(')')?.split_once('(')?;
    let (result, name) = split_name(head);
    let parameters = parameters.split(',').map(str::trim).filter(|one| *one != "void");
    let parameters = parameters.map(|parameter| {
        let (c, name) = split_name(parameter);
        Parameter { c, name }
    });
    let parameters = parameters.collect();
    Some(Function { flags: flags.split_whitespace().collect(), result, name, parameters, rust })
}

/// `const TYPE *source` is `const TYPE *` and `source`.
fn split_name(declaration: &str) -> (&str, &str) {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let at = declaration.rfind(|c| !is_name(c)).map_or(0, |at| at + 1);
    (declaration[..at].trim(), &declaration[at..])
}
