"""Long entity names and the words they are made of (EMBERT, Cai et al., NLPCC 2021, appendix).

    kepl graph segment build --graph GRAPH --input TEXT ... --out FOLDER
    kepl graph segment show  --segmenter FOLDER NAME ...
    kepl graph segment score --segmenter FOLDER --reviewed FILE

ngrams, phrases  phrases of a text with their quality, learnt from the graph's names
cuts             characters that names are cut at; cut_points_zh.tsv is the reviewed table for
                 Chinese
segmenter        Segmenter.load(folder).pieces(name): cut points, Jieba, correction by the phrases
build            what is written, and the graph with the phrases as entities
score            against names cut by hand
"""

from kg.build.segment.segmenter import Segmenter

__all__ = ["Segmenter"]
