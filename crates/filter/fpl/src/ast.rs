//! The syntax of an FPL text, before names have a meaning.
//!
//! ```text
//! program   := { item }
//! item      := 'CONST' name '=' expr ';' | 'MACRO' name [ '(' [ name { ',' name } ] ')' ] '=' expr ';' | statement
//! statement := place assign expr ';' | place '++' ';' | place '--' ';' | '++' place ';' | '--' place ';'
//!            | 'IF' '(' expr ')' 'THEN' { statement } [ 'ELSE' { statement } ] 'FI' [ ';' ]
//!            | 'FOR' '(' place '=' expr ';' place relation expr ';' step ')' { statement } 'ROF' [ ';' ]
//!            | 'BREAK' ';' | 'RETURN' expr ';' | extern ';'
//! assign    := '=' | '+=' | '-=' | '*=' | '/=' | '%=' | '<<=' | '>>=' | '&=' | '^=' | '|='
//! step      := place '+=' expr | place '-=' expr | place '++' | place '--' | '++' place | '--' place
//! place     := 'R' '[' expr ']' | ( 'M' | 'MEM' ) '[' expr ']' | name [ '(' exprs ')' ]      -- a macro for a place
//! expr      := binary operators over unary, see Operator
//! unary     := ( '-' | '~' | '!' | '+' ) unary | primary
//! primary   := number | place | packet | cast '(' expr ')' | '(' expr ')' | extern
//!            | 'HASH' '(' expr ',' expr ',' expr ')'
//! extern    := 'EXTERN' '(' name ',' expr ',' expr ')'
//! packet    := 'PKT' '.' ( unit '[' expr ']' [ '.' piece '[' expr ']' ] | name )
//! unit      := 'B' | 'W' | 'DW' | 'QW' | 'SB' | 'SW' | 'SDW' | 'SQW'
//! piece     := ( 'U' | 'S' ) ( '1' | '4' | '8' | '16' | '32' )
//! cast      := ( 'U' | 'S' ) ( '1' | '4' | '8' | '16' | '32' | '64' )
//! ```

use tapline_syntax::Span;

/// A whole text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// In the order of the text.
    pub items: Vec<Item>,
}

/// An item at the top level of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A name for a number.
    Constant(Name, Expr),
    /// A name for an expression.
    Macro(Macro),
    /// Something to do.
    Statement(Statement),
}

/// A word and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The word.
    pub text: String,
    /// Place in the text.
    pub span: Span,
}

/// A name for an expression, or for a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Macro {
    /// The name.
    pub name: Name,
    /// The names of the parameters.
    pub parameters: Vec<Name>,
    /// The text that takes its place.
    pub body: Expr,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Kind of the statement.
    pub kind: StatementKind,
    /// All of it.
    pub span: Span,
}

/// The kinds of statements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// `place = value`, or `place op= value`.
    Assign(Expr, Option<Operator>, Expr),
    /// `IF`: the test, the statements if it holds, and those if not.
    If(Expr, Vec<Statement>, Vec<Statement>),
    /// `FOR`.
    For(Box<For>),
    /// `BREAK`.
    Break,
    /// `RETURN`.
    Return(Expr),
    /// `EXTERN` with an unused value.
    Call(Expr),
}

/// A loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct For {
    /// The register, as the first part names it.
    pub register: Expr,
    /// First value of the counter.
    pub start: Expr,
    /// The register, as the test names it.
    pub tested: Expr,
    /// The comparison with the end.
    pub relation: Operator,
    /// The expression that the register is compared with.
    pub end: Expr,
    /// The register, as the last part names it.
    pub stepped: Expr,
    /// Whether the step is added or taken away.
    pub upward: bool,
    /// The step that is added or subtracted.
    pub step: Expr,
    /// The statements of a round.
    pub body: Vec<Statement>,
    /// From `FOR` to its closing parenthesis.
    pub head: Span,
}

/// A number to be computed, or a place that holds one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expr {
    /// Kind of the expression.
    pub kind: ExprKind,
    /// All of it.
    pub span: Span,
}

/// The kinds of expressions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExprKind {
    /// A literal.
    Number(u64),
    /// A constant, a parameter, or a macro and its arguments.
    Name(String, Vec<Expr>),
    /// `R[n]`.
    Register(Box<Expr>),
    /// `M[n]`.
    Cell(Box<Expr>),
    /// `PKT.B[n]`, perhaps with a piece: `PKT.B[n].U4[m]`.
    Bytes(Unit, Box<Expr>, Option<(Piece, Box<Expr>)>),
    /// `PKT.IP_SRC`.
    Field(String),
    /// `-a`, `~a`, `!a`.
    Unary(Unary, Box<Expr>),
    /// `a + b`, `a && b`, and so on.
    Binary(Operator, Box<Expr>, Box<Expr>),
    /// `S8(a)`.
    Cast(Piece, Box<Expr>),
    /// `HASH(start, len, mask)`.
    Hash(Box<[Expr; 3]>),
    /// `EXTERN(name, input, output)`.
    Extern(Name, Box<[Expr; 2]>),
}

/// Width of packet bytes, and their sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// 1, 2, 4 or 8.
    pub bytes: u32,
    /// Whether the first bit is the sign.
    pub signed: bool,
}

/// Width of bits, and their sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// 1, 4, 8, 16, 32 or 64.
    pub bits: u32,
    /// Whether the first bit is the sign.
    pub signed: bool,
}

/// Operators before a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    /// `-a`: signed.
    Minus,
    /// `~a`: each bit reversed.
    Complement,
    /// `!a`: 1 if it is 0, else 0.
    Not,
}

tapline_packet::named_enum! {
    /// Operators between two values. Each line binds less than the one before; those of a line bind from left to right.
    ///
    /// ```text
    /// * / %
    /// + -
    /// << >>
    /// &
    /// ^
    /// |
    /// == != < > <= >=          -- not in a row: (a < b) < c needs the parentheses
    /// &&
    /// ||
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[expect(missing_docs, reason = "the names say it")]
    pub enum Operator {
        Multiply = "*",
        Divide = "/",
        Remainder = "%",
        Add = "+",
        Subtract = "-",
        ShiftLeft = "<<",
        ShiftRight = ">>",
        BitAnd = "&",
        BitXor = "^",
        BitOr = "|",
        Equal = "==",
        NotEqual = "!=",
        Less = "<",
        Greater = ">",
        LessEqual = "<=",
        GreaterEqual = ">=",
        And = "&&",
        Or = "||",
    }
}

impl Operator {
    /// 1 for the loosest to 9 for the tightest.
    pub fn precedence(self) -> u8 {
        match self {
            Operator::Multiply | Operator::Divide | Operator::Remainder => 9,
            Operator::Add | Operator::Subtract => 8,
            Operator::ShiftLeft | Operator::ShiftRight => 7,
            Operator::BitAnd => 6,
            Operator::BitXor => 5,
            Operator::BitOr => 4,
            Operator::And => 2,
            Operator::Or => 1,
            Operator::Equal | Operator::NotEqual => 3,
            Operator::Less | Operator::Greater | Operator::LessEqual | Operator::GreaterEqual => 3,
        }
    }

    /// Whether it compares: `==` to `>=`.
    pub fn is_relation(self) -> bool {
        self.precedence() == 3
    }
}

impl Unit {
    /// The unit that is written so: `B`, `SDW`.
    pub fn from_name(name: &str) -> Option<Unit> {
        let (signed, rest) = name.strip_prefix('S').map_or((false, name), |rest| (true, rest));
        let bytes = ["B", "W", "DW", "QW"].iter().position(|unit| *unit == rest)?;
        Some(Unit { bytes: 1 << bytes, signed })
    }
}

impl Piece {
    /// The piece that is written so: `U4`, `S16`.
    pub fn from_name(name: &str) -> Option<Piece> {
        let signed = match name.as_bytes().first()? {
            b'U' => false,
            b'S' => true,
            _ => return None,
        };
        let bits = ["1", "4", "8", "16", "32", "64"].iter().position(|bits| *bits == &name[1..])?;
        Some(Piece { bits: [1, 4, 8, 16, 32, 64][bits], signed })
    }
}
