"""The architectures of the model list: one variant a family, the smallest, on the smallest images that it takes.

timm: a name and, after a colon, the size of the image where it is not 64. A name with a star is given the size when it
is made (its position embedding or its windows depend on it).
"""

TIMM = """
    beit_base_patch16_224* caformer_s18 cait_xxs24_224* coat_tiny* coatnet_pico_rw_224* convit_tiny* convmixer_768_32
    convnext_atto convnextv2_atto cpubone_t0 crossvit_9_240 darknet17 davit_tiny deit_tiny_patch16_224* densenet121
    dla34 dm_nfnet_f0 dpn68 edgenext_xx_small efficientformer_l1:224 efficientformerv2_s0* efficientnet_b0
    efficientvim_m1 efficientvit_b0 efficientvit_m0 fasternet_t0 fastvit_t8 focalnet_tiny_srf gcvit_xxtiny* gernet_s
    ghostnet_050 gmlp_ti16_224* hgnetv2_b0 hiera_tiny_224* hrnet_w18_small iformer_t inception_next_atto inception_v3:96
    legacy_seresnet18 levit_128s* mambaout_femto mixer_s16_224* mixnet_s mobilenetv3_small_050 mobilevit_xxs mvitv2_tiny
    nest_tiny* nf_resnet26 pit_ti_224* poolformer_s12 pvt_v2_b0 regnetx_002 repghostnet_050 repvit_m1 res2net50_14w_8s
    resmlp_12_224* resnest14d resnet18 resnetv2_50x1_bit rexnet_100 selecsls42 sequencer2d_s shvit_s1 skresnet18
    starnet_s1 swiftformer_xs swin_tiny_patch4_window7_224* swinv2_tiny_window8_256* test_maxvit* test_vit
    test_vit_relpos* tiny_vit_5m_224 tresnet_m twins_svt_small visformer_tiny* volo_d1_224* vovnet39a
    xcit_nano_12_p16_224
""".split()

TORCHVISION = """
    alexnet convnext_tiny densenet121 efficientnet_b0 googlenet inception_v3:96 maxvit_t:224 mnasnet0_5
    mobilenet_v2 mobilenet_v3_small regnet_y_400mf resnet18 resnext50_32x4d shufflenet_v2_x0_5 squeezenet1_1
    swin_t swin_v2_t vgg11 vit_b_16* wide_resnet50_2
""".split()

SUBSET = """
    timm/nf_resnet26 timm/test_vit timm/levit_128s torchvision/shufflenet_v2_x0_5 transformers/bert transformers/llama
""".split()
"""What the test suite runs of the list: standardised weights, attention, its fused form, depthwise, language."""
