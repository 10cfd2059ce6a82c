"""What the server answers, as the interface describes it (OpenAPI): a client can be generated."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Said(BaseModel):
    """A part of an answer; it has its fields and no others."""

    model_config = ConfigDict(extra="forbid")


class Candidate(Said):
    """An entity that a mention may mean."""

    entity: str
    name: str = Field(description="the name that was found")
    score: float
    tied: bool = Field(description="another entity has this name, and nothing decides")
    matched: str | None = Field(description="how the mention differs from the name")


class Mention(Said):
    """A mention, with what it means; places are of characters, the end excluded."""

    start: int
    end: int
    text: str
    entity: str | None = Field(description="null: linked to nothing")
    name: str | None
    type: str | None
    score: float | None
    candidates: list[Candidate] = Field(description="the best first")
    long_form: str | None = Field(description="of a short form, what the text defines it as")
    detector_score: float | None
    part: str | None = Field(description="of a composite mention, the phrase that is linked")
    matched: str | None
    negated: bool | None = Field(description="null: not looked for")
    family: bool | None
    historical: bool | None
    hypothetical: bool | None


class Document(Said):
    """A text with its mentions."""

    text: str
    mentions: list[Mention]


class Linked(Said):
    """The texts of a request, in its order."""

    documents: list[Document]


class Entity(Said):
    """An entity that a tagger found: characters [start, end)."""

    start: int
    end: int
    text: str
    type: str
    score: float


class Tagged(Said):
    """A text with what a tagger found."""

    text: str
    mentions: list[Entity]


class Predicted(Said):
    """The texts of a request, in its order."""

    documents: list[Tagged]


class Name(Said):
    """A name of an entity."""

    name: str
    kind: str
    language: str


class Neighbour(Said):
    """An entity at the other end of a triple."""

    relation: str
    direction: Literal["out", "in"]
    id: str
    name: str


class About(Said):
    """What the graph says of an entity."""

    id: str
    name: str
    type: str | None
    names: list[Name] = Field(description="the preferred one first, at most 30 of a language")
    definition: str | None
    source: str | None = Field(description="the entity's page at its source, where that is known")
    same_as: list[str] = Field(description="ids of equivalent entities")
    neighbours: list[Neighbour] = Field(description="at most 30")
    triples: int


class FoundEntity(Said):
    """An entity with a name that was looked for."""

    id: str
    name: str
    type: str | None
    found: str = Field(description="the name that contains what was looked for")
    kind: str
    exact: bool


class Search(Said):
    """The entities of a name, those with exactly this name first."""

    entities: list[FoundEntity]
    count: int = Field(description="of all that were found; the first of them are listed")


class Health(Said):
    """Whether the server answers, and with what."""

    status: Literal["ok"]
    chain: str
    model: str | None = Field(description="what answers /predict")
    entities: int
    token: bool = Field(description="whether requests need one")
    examples: list[str]


class Failure(Said):
    """Why a request has no answer."""

    error: str
