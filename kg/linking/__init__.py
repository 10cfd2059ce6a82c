"""Text -> mentions of a graph's entities.

matcher, abbreviations, tokens   dictionary linker: DictionaryLinker.link(text)
scispacy                         spaCy spans, nearest names: ScispacyLinker.link(text) (extra
                                 `scispacy`)
given                            mentions that come with the documents:
                                 GivenLinker.link_document(document)
mentions                         Document and Mention
documents, bioc                  readers: JSON lines, plain text, PubTator, PubMed XML, BioC
run                              kepl data link; link_corpus writes a linked corpus, linked
                                 reads it
"""

from kg.documents.mentions import Document, Mention
from kg.linking.given import GivenLinker
from kg.linking.matcher import DictionaryLinker
from kg.linking.run import link_corpus, linked_documents

__all__ = [
    "DictionaryLinker",
    "Document",
    "GivenLinker",
    "Mention",
    "link_corpus",
    "linked_documents",
]
