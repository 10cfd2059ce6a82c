"""A small ontology in OWL and a small thesaurus in SKOS, as RDF/XML and Turtle."""

OWL = """<?xml version="1.0"?>
<!DOCTYPE rdf:RDF [ <!ENTITY obo "http://purl.obolibrary.org/obo/" > ]>
<rdf:RDF xmlns:owl="http://www.w3.org/2002/07/owl#"
  xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
  xmlns:rdfs="http://www.w3.org/2000/01/rdf-schema#"
  xmlns:oio="http://www.geneontology.org/formats/oboInOwl#" xmlns:obo="&obo;">
<owl:Ontology rdf:about="&obo;x.owl"><owl:versionInfo>2099</owl:versionInfo></owl:Ontology>
<owl:ObjectProperty rdf:about="&obo;RO_1"><rdfs:label>part of</rdfs:label></owl:ObjectProperty>
<owl:Class rdf:about="&obo;X_1"><rdfs:label xml:lang="en">whole thing</rdfs:label>
  <rdfs:label xml:lang="de">Ganzes</rdfs:label>
  <oio:hasExactSynonym>entirety</oio:hasExactSynonym>
  <obo:IAO_0000115>All of it.</obo:IAO_0000115></owl:Class>
<owl:Class rdf:about="&obo;X_2"><rdfs:label>small thing</rdfs:label>
  <oio:hasDbXref>X:1</oio:hasDbXref><oio:hasAlternativeId>X:9</oio:hasAlternativeId>
  <rdfs:subClassOf rdf:resource="&obo;X_1"/>
  <rdfs:subClassOf><owl:Restriction><owl:onProperty rdf:resource="&obo;RO_1"/>
    <owl:someValuesFrom rdf:resource="&obo;X_1"/></owl:Restriction></rdfs:subClassOf>
  <rdfs:subClassOf><owl:Restriction><owl:onProperty rdf:resource="&obo;RO_1"/>
    <owl:allValuesFrom rdf:resource="&obo;X_1"/></owl:Restriction></rdfs:subClassOf></owl:Class>
<owl:Class rdf:about="&obo;X_3"><rdfs:label>gone</rdfs:label>
  <owl:deprecated>true</owl:deprecated><obo:IAO_0100001 rdf:resource="&obo;X_1"/></owl:Class>
</rdf:RDF>
"""
SKOS = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix : <http://example.org/t#> .
:a a skos:Concept ; skos:prefLabel "gout"@en, "Gicht"@de ; skos:altLabel "podagra"@en ;
  skos:broader :b ; skos:exactMatch :c .
:b a skos:Concept ; skos:prefLabel "disease"@en ; skos:narrower :c ; skos:broader :a .
:c a skos:Concept ; skos:prefLabel "gouty arthritis"@en ; skos:related :a .
"""
